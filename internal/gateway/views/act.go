package views

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// act forwards a request that is not a read to the member, or the cell, of its object.
func (v *Views) act(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	shown, err := v.metadata(r.Context(), info)
	if apierrors.IsNotFound(err) {
		v.answered(w, r, destination{info: info}, v.Next) // it does not exist, or is a template that is not in the cache yet
		return
	}
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	target := destination{info: info, shown: shown, cluster: shown.Annotations[names.ClusterAnnotation]}
	if target.cluster != "" && info.Subresource == "" && (info.Verb == "delete" || info.Verb == "patch") {
		if target.template, err = v.templateOf(r.Context(), info, shown); err != nil {
			forward.WriteError(w, r, err)
			return
		}
	}
	if r, err = v.translated(r, target); err != nil {
		forward.WriteError(w, r, err)
		return
	}
	switch {
	case target.template != nil:
		v.Next.ServeHTTP(w, r) // what is shown is another object
	case target.cluster == "":
		v.answered(w, r, target, v.Next)
	default:
		v.answered(w, v.withoutVersion(r), target, v.member(target.cluster))
	}
}

// destination is the place that a request goes to.
type destination struct {
	info *request.RequestInfo
	// shown is the metadata of the object in the cache.
	shown *metav1.PartialObjectMetadata
	// cluster is the member of the object; empty for a template.
	cluster string
	// template is the template of the object, if the request goes to the template.
	template *metav1.PartialObjectMetadata
	// under is what precedes the path of the object at cluster-gateways.
	under string
}

// member returns a handler that forwards requests to a member.
func (v *Views) member(cluster string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { v.toMember(w, r, cluster) })
}

// toMember forwards a request to a member with the identity of the caller.
func (v *Views) toMember(w http.ResponseWriter, r *http.Request, cluster string) {
	info := &request.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIPrefix: "apis", APIGroup: "cluster.karmada.io", APIVersion: "v1alpha1",
		Resource: "clusters", Subresource: "proxy", Name: cluster,
		Parts: append([]string{"clusters", cluster, "proxy"}, strings.Split(strings.Trim(r.URL.Path, "/"), "/")...),
	}
	v.Members.ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), info)))
}

// metadata returns the metadata of the object of a request from the cache.
func (v *Views) metadata(ctx context.Context, info *request.RequestInfo) (*metav1.PartialObjectMetadata, error) {
	object := &metav1.PartialObjectMetadata{}
	return object, v.getJSON(ctx, callerOf(ctx), objectPath(info), "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", object)
}

// getJSON reads an object from the first cluster-gateway that has it.
func (v *Views) getJSON(ctx context.Context, caller, path, accept string, into any) error {
	var err error
	for _, s := range v.shares {
		response, failure := s.ask(ctx, caller, func() *http.Request {
			r := get(ctx, path, nil)
			r.Header.Set("Accept", accept)
			return r
		})
		if failure != nil {
			return failure
		}
		if err = readJSON(ctx, response, into); !apierrors.IsNotFound(err) {
			return err
		}
	}
	return err
}

const (
	// maxAnswer bounds answers that the gateway reads itself.
	maxAnswer = 64 << 20
	// answerCopies is how often as much memory as that of an answer is needed to decode it.
	answerCopies = 8
)

func readJSON(ctx context.Context, response *http.Response, into any) error {
	defer response.Body.Close()
	body, err := forward.ReadAll(ctx, response.Body, response.ContentLength, maxAnswer, answerCopies)
	if err != nil {
		return forward.Unread("the cluster-gateway", err)
	}
	if response.StatusCode != http.StatusOK {
		var status metav1.Status
		if utiljson.Unmarshal(body, &status) == nil && status.Code != 0 {
			return &apierrors.StatusError{ErrStatus: status}
		}
		return apierrors.NewGenericServerResponse(response.StatusCode, "get", schema.GroupResource{}, "", string(bytes.TrimSpace(body)), 0, true)
	}
	if err := utiljson.Unmarshal(body, into); err != nil {
		return apierrors.NewInternalError(err)
	}
	return nil
}

// templateOf returns the template of an object, nil if it has none that still exists.
func (v *Views) templateOf(ctx context.Context, info *request.RequestInfo, shown *metav1.PartialObjectMetadata) (*metav1.PartialObjectMetadata, error) {
	uid := shown.Annotations[names.TemplateUIDAnnotation]
	if uid == "" {
		return nil, nil
	}
	data, err := v.Template(ctx, info)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	template := &metav1.PartialObjectMetadata{}
	if err := utiljson.Unmarshal(data, template); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if string(template.UID) != uid {
		return nil, nil
	}
	return template, nil
}

// objectPath is the path of the object of a request, without its subresource.
func objectPath(info *request.RequestInfo) string { return collectionPath(info) + "/" + info.Name }

func collectionPath(info *request.RequestInfo) string {
	parts := []string{"", info.APIPrefix}
	if info.APIGroup != "" {
		parts = append(parts, info.APIGroup)
	}
	parts = append(parts, info.APIVersion)
	if info.Namespace != "" {
		parts = append(parts, "namespaces", info.Namespace)
	}
	return strings.Join(append(parts, info.Resource), "/")
}

var (
	errStale = errors.New("the object has been modified; please apply your changes to the latest version and try again")
	// errForgotten is returned for a version that no cluster-gateway knows.
	errForgotten = errors.New("no cluster-gateway knows the version any more; please apply your changes to the latest version and try again")
)
