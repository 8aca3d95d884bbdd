package views

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/endpoints/request"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/inner"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/splice"
)

const (
	// cacheDigits is the length of every resourceVersion of a cache. Those of API servers are shorter.
	cacheDigits = 19
)

// translated returns a request with the resourceVersions in its body translated for its destination. The error can be sent to a client.
func (v *Views) translated(r *http.Request, to destination) (*http.Request, error) {
	if !hasBody(r, to) {
		return r, nil
	}
	body, err := forward.ReadBody(r)
	if err != nil {
		return r, err
	}
	kind := bodyKind(to)
	contentType := r.Header.Get("Content-Type")
	translate := func(version string) (string, error) {
		at, err := v.versionAt(r.Context(), to, version)
		if errors.Is(err, errForgotten) {
			return forgotten(version, contentType, body, to)
		}
		return at, err
	}
	if body, err = kind.Rewrite(contentType, body, translate); err == nil && to.info.Verb == "update" {
		body, err = restored(contentType, body, v.hidden(r, to))
	}
	if err == nil && kind == splice.DeleteOptionsBody && to.template != nil {
		body, contentType, err = preconditioned(contentType, body, to)
	}
	if err != nil {
		return r, asStatus(err, to)
	}
	clone := r.Clone(r.Context())
	forward.SetBody(clone, body)
	if contentType != "" {
		clone.Header.Set("Content-Type", contentType)
	}
	return clone, nil
}

// forgotten translates a version that no cluster-gateway knows. A whole object names that of its destination in an annotation, and so it does not matter
// that the replica has been restarted that has shown the object.
func forgotten(version, contentType string, body []byte, to destination) (string, error) {
	if to.info.Verb == "update" {
		object, err := splice.ReadMetadata(mediaTypeOf(contentType), body)
		cluster := cmp.Or(object.Annotations.Get(names.ClusterAnnotation), object.Annotations.Get(names.CachedFromClusterAnnotation))
		if read := object.Annotations.Get(names.MemberVersionAnnotation); err == nil && read != "" && cluster == to.cluster {
			return read, nil
		}
	}
	if _, err := position.ParseVersion(version); err == nil && (to.cluster == "" || to.template != nil) {
		return version, nil // one of a template may be as long, after a thousand changes of the cells
	}
	return "", errForgotten
}

// mediaTypeOf returns the media type of a body; its default is that of API servers.
func mediaTypeOf(contentType string) string {
	if mediaType, _, err := mime.ParseMediaType(contentType); err == nil {
		return mediaType
	}
	return runtime.ContentTypeJSON
}

func hasBody(r *http.Request, to destination) bool {
	if r.Header.Get("Upgrade") != "" || to.info.Subresource == "proxy" || r.Body == nil || r.Body == http.NoBody {
		return false
	}
	switch to.info.Verb {
	case "create", "update", "patch", "delete":
		return true
	default:
		return false
	}
}

func bodyKind(to destination) splice.Body {
	switch {
	case to.info.Verb == "delete":
		return splice.DeleteOptionsBody
	case to.info.Subresource == "eviction":
		return splice.EvictionBody
	default:
		return splice.ObjectBody
	}
}

func asStatus(err error, to destination) error {
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		return err
	case errors.Is(err, errStale), errors.Is(err, errForgotten):
		return apierrors.NewConflict(schema.GroupResource{Group: to.info.APIGroup, Resource: to.info.Resource}, to.info.Name, errStale)
	default:
		return apierrors.NewBadRequest(err.Error())
	}
}

// versionAt translates a version of the cache to that of the destination. Other versions are unchanged.
func (v *Views) versionAt(ctx context.Context, to destination, version string) (string, error) {
	versions, ok := v.cacheVersions(version)
	if !ok {
		return version, nil
	}
	cluster, memberVersion, err := v.memberVersion(ctx, to, versions)
	if err != nil {
		return "", err
	}
	if cluster != to.cluster {
		return "", errStale
	}
	if to.template == nil {
		return memberVersion, nil
	}
	// What the caller has seen is the object of the member, and what it changes is the template. Both must be as they were.
	if memberVersion != to.shown.Annotations[names.MemberVersionAnnotation] {
		return "", errStale
	}
	return to.template.ResourceVersion, nil
}

// cacheVersions returns what a version is at each share; ok is false if it is not of a cache. Events of a watch over several shares
// have the versions of all.
func (v *Views) cacheVersions(version string) (versions []string, ok bool) {
	if len(version) == cacheDigits {
		for range v.shares {
			versions = append(versions, version)
		}
		return versions, true
	}
	at, err := position.Parse(version)
	if err != nil || len(v.shares) < 2 || len(at.Versions) != len(v.shares) {
		return nil, false
	}
	for _, one := range at.Versions {
		versions = append(versions, strconv.FormatUint(one, 10))
	}
	return versions, true
}

// memberVersion asks all cluster-gateways whose version it is: the one that gave it out may not be the one that is asked now.
func (v *Views) memberVersion(ctx context.Context, to destination, versions []string) (cluster, memberVersion string, err error) {
	for i, s := range v.shares {
		for _, r := range s.choose(callerOf(ctx)) {
			response, err := r.upstream.RoundTrip(get(ctx, to.under+objectPath(to.info)+"/memberversion", url.Values{"version": {versions[i]}}))
			if err != nil {
				continue
			}
			var found struct {
				Cluster         string `json:"cluster"`
				ResourceVersion string `json:"resourceVersion"`
			}
			if readJSON(ctx, response, &found) == nil {
				return found.Cluster, found.ResourceVersion, nil
			}
		}
	}
	return "", "", errForgotten
}

var codecs = serializer.NewCodecFactory(clientscheme.Scheme)

// hidden returns the annotation of kubectl apply that an object in a member has and the cache omits. An update of the whole object would
// remove it.
func (v *Views) hidden(r *http.Request, to destination) func() string {
	return func() string {
		if to.cluster == "" {
			return "" // templates have it unless the cache omits it for all objects
		}
		look := (&http.Request{
			Method: http.MethodGet, URL: &url.URL{Path: objectPath(to.info)}, Header: http.Header{"Accept": {"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}},
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody, RemoteAddr: r.RemoteAddr, Host: r.Host,
		}).WithContext(request.WithRequestInfo(r.Context(), to.info))
		answer := inner.Do(v.member(to.cluster), look)
		var live metav1.PartialObjectMetadata
		if answer.Code() != http.StatusOK || utiljson.Unmarshal(answer.Body(), &live) != nil {
			return "" // the update itself will fail
		}
		return live.Annotations[corev1.LastAppliedConfigAnnotation]
	}
}

// restored returns a whole object without what the cache has added, and with what it omits.
func restored(contentType string, body []byte, hidden func() string) ([]byte, error) {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if contentType == "" {
		mediaType, err = runtime.ContentTypeJSON, nil
	}
	if err != nil || !bytes.Contains(body, []byte(names.MemberVersionAnnotation)) {
		return body, nil //nolint:nilerr // the API server refuses it
	}
	switch mediaType {
	case runtime.ContentTypeJSON:
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal(body, &object.Object); err != nil {
			return body, nil //nolint:nilerr // as above
		}
		restore(object, hidden)
		return json.Marshal(object.Object)
	case runtime.ContentTypeProtobuf:
		object, _, err := codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return body, nil //nolint:nilerr // as above
		}
		described, err := meta.Accessor(object)
		if err != nil {
			return body, nil //nolint:nilerr // as above
		}
		restore(described, hidden)
		info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
		return runtime.Encode(info.Serializer, object)
	default:
		return body, nil
	}
}

func restore(object metav1.Object, hidden func() string) {
	annotations := object.GetAnnotations()
	for _, name := range []string{names.ClusterAnnotation, names.MemberVersionAnnotation, names.StaleSinceAnnotation, names.ContestedAnnotation, names.CachedFromClusterAnnotation} {
		delete(annotations, name)
	}
	if _, given := annotations[corev1.LastAppliedConfigAnnotation]; !given {
		if value := hidden(); value != "" {
			annotations[corev1.LastAppliedConfigAnnotation] = value
		}
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	object.SetAnnotations(annotations)
}

// preconditioned translates the options of a deletion from the object of a member to its template.
func preconditioned(contentType string, body []byte, to destination) ([]byte, string, error) {
	options := &metav1.DeleteOptions{}
	object, _, err := codecs.UniversalDeserializer().Decode(body, &deleteOptions, options)
	if err != nil {
		return body, contentType, nil //nolint:nilerr // the API server refuses it
	}
	options, ok := object.(*metav1.DeleteOptions)
	if !ok || options.Preconditions == nil || options.Preconditions.UID == nil {
		return body, contentType, nil
	}
	if *options.Preconditions.UID != to.shown.UID {
		return body, contentType, nil // the API server will refuse it
	}
	options.Preconditions.UID = &to.template.UID
	options.APIVersion, options.Kind = "v1", "DeleteOptions"
	changed, err := json.Marshal(options)
	return changed, runtime.ContentTypeJSON, err
}

var deleteOptions = schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
