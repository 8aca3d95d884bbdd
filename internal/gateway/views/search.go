package views

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/router"
	"github.com/cellplane/cellplane/internal/gateway/served"
)

// Search serves the objects of members that ResourceRegistries select, under the two paths of search.karmada.io. Each is followed by the
// path of an ordinary request. That has to be authorized, too: who may not read Secrets in the federation cannot read those of members
// here. Writes and subresources go to the member of the object with the identity of the caller.
type Search struct {
	// Views has the cluster-gateways; it is nil if there are none.
	Views *Views
	// Next serves all other requests, and those of the proxy that are not for what is cached.
	Next http.Handler
	// Authorizer decides on the ordinary request.
	Authorizer authorizer.Authorizer
	// Resolver reads the path of the ordinary request.
	Resolver request.RequestInfoResolver
}

// ServeHTTP implements http.Handler.
func (s *Search) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at, path := surfaceOf(r.URL.Path)
	if at == "" {
		s.Next.ServeHTTP(w, r)
		return
	}
	audit.AddAuditAnnotation(r.Context(), "cellplane.io/cluster-gateway", "true")
	if s.Views == nil {
		forward.WriteError(w, r, apierrors.NewServiceUnavailable("this gateway has no cluster-gateway, which caches what ResourceRegistries select"))
		return
	}
	ordinary, info, err := s.ordinary(r, path)
	if err == nil {
		err = served.Authorize(ordinary.Context(), s.Authorizer, info)
	}
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	ctx, cancel := untilStopping(ordinary.Context())
	defer cancel()
	q := &searchRequest{Search: s, w: w, r: ordinary.WithContext(ctx), info: info, under: at}
	if at == views.SearchPath {
		q.cache()
		return
	}
	q.proxy()
}

// surfaceOf returns which path of search.karmada.io precedes that of an ordinary request; at is empty for neither.
func surfaceOf(path string) (at, ordinary string) {
	for _, at := range []string{views.SearchPath, views.ProxyingPath} {
		if rest, ok := strings.CutPrefix(path, at); ok && (rest == "" || rest[0] == '/') {
			if rest == "" {
				rest = "/"
			}
			return at, rest
		}
	}
	return "", ""
}

// ordinary returns the request without the path of search.karmada.io.
func (s *Search) ordinary(r *http.Request, path string) (*http.Request, *request.RequestInfo, error) {
	clone := r.Clone(r.Context())
	clone.URL = &url.URL{Path: path, RawQuery: r.URL.RawQuery}
	clone.RequestURI = ""
	info, err := s.Resolver.NewRequestInfo(clone)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	if at, _ := surfaceOf(path); at != "" {
		return nil, nil, apierrors.NewBadRequest("the path names search.karmada.io twice")
	}
	return clone.WithContext(request.WithRequestInfo(r.Context(), info)), info, nil
}

func groupResource(info *request.RequestInfo) schema.GroupResource {
	return schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
}

// searchRequest is a request below search.karmada.io.
type searchRequest struct {
	*Search
	w    http.ResponseWriter
	r    *http.Request // the ordinary request
	info *request.RequestInfo
	// under is the path of search.karmada.io.
	under string
}

func (q *searchRequest) fail(err error) { forward.WriteError(q.w, q.r, err) }

// cache serves search/cache, which lists.
func (q *searchRequest) cache() {
	reads := q.info.Verb == "get" || q.info.Verb == "list"
	switch {
	case !q.info.IsResourceRequest:
		q.fail(apierrors.NewBadRequest("the path after search/cache must be that of a resource, such as /apis/apps/v1/deployments"))
	case !reads || q.info.Subresource != "":
		q.fail(apierrors.NewMethodNotSupported(groupResource(q.info), q.info.Verb))
	case len(q.Views.shares) > 1:
		q.fail(errShares)
	default:
		q.forward(q.Views.shares[0], nil, func() {
			q.fail(refusal(http.StatusNotFound, metav1.StatusReasonNotFound, groupResource(q.info).String()+" is not cached: no ResourceRegistry selects it"))
		})
	}
}

// errShares is returned for lists and watches that would have to be merged.
var errShares = refusal(http.StatusNotImplemented, metav1.StatusReasonUnknown,
	"lists and watches below search.karmada.io need cluster-gateways that each show all clusters; this gateway has several shares")

// refusal returns an error with a message of our own.
func refusal(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// proxy serves proxying/karmada/proxy.
func (q *searchRequest) proxy() {
	if !q.info.IsResourceRequest {
		q.toFederation()
		return
	}
	switch verb := q.info.Verb; {
	case q.info.Subresource == "" && verb == "get":
		q.get()
	case q.info.Subresource == "" && (verb == "list" || verb == "watch") && len(q.Views.shares) > 1:
		q.fail(errShares)
	case q.info.Subresource == "" && verb == "list":
		q.forward(q.Views.shares[0], nil, q.toFederation)
	case q.info.Subresource == "" && verb == "watch":
		router.ServeWatch(q.w, q.r, func(w http.ResponseWriter, r *http.Request) {
			watch := *q
			watch.w, watch.r = &eventWriter{ResponseWriter: w}, r
			watch.forward(q.Views.shares[0], nil, func() {
				watch.w = w
				watch.toFederation()
			})
		})
	case q.info.Name == "":
		q.toCollection()
	default:
		q.act()
	}
}

// toFederation serves the request as /federation does. So are requests for what is not cached.
func (q *searchRequest) toFederation() {
	q.Next.ServeHTTP(q.w, q.r.WithContext(router.WithFederationSurface(q.r.Context())))
}

// get serves an object.
func (q *searchRequest) get() {
	if len(q.Views.shares) == 1 {
		q.forward(q.Views.shares[0], nil, q.toFederation)
		return
	}
	found, err := q.find("")
	switch {
	case errors.Is(err, errUncached):
		q.toFederation()
	case err != nil:
		q.fail(err)
	default:
		q.forward(found.share, http.Header{views.ClusterHeader: {found.cluster()}}, q.toFederation)
	}
}

// toCollection refuses writes to all objects of a resource that is cached.
func (q *searchRequest) toCollection() {
	for _, s := range q.Views.shares {
		probe := get(q.r.Context(), q.under+collectionPath(q.info), url.Values{"limit": {"1"}})
		response, err := s.ask(q.r.Context(), callerOf(q.r.Context()), func() *http.Request { return probe })
		if err != nil {
			q.fail(err)
			return
		}
		response.Body.Close()
		if response.Header.Get(views.UncachedHeader) == "" {
			q.fail(refusal(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
				groupResource(q.info).String()+" of members cannot be created, or deleted all at once, here; use clusters/NAME/proxy"))
			return
		}
	}
	q.toFederation()
}

// forward sends the request to a share. uncached is called if no ResourceRegistry selects the resource.
func (q *searchRequest) forward(s *share, header http.Header, uncached func()) {
	ctx := q.r.Context()
	response, err := s.ask(ctx, callerOf(ctx), func() *http.Request {
		out := forwarded(ctx, q.r)
		out.URL.Path = q.under + q.r.URL.Path
		out.Header.Del(views.ClusterHeader)
		for name, values := range header {
			out.Header[name] = values
		}
		return out
	})
	if err != nil {
		q.fail(err)
		return
	}
	defer response.Body.Close()
	switch {
	case response.Header.Get(views.UncachedHeader) != "":
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<10))
		uncached()
	case q.info.Verb == "watch":
		forward.AnswerHeader(q.w, response)
		stream(q.w, response.Body)
	default:
		forward.Answer(q.w, response)
	}
}

var errUncached = errors.New("no ResourceRegistry selects it")

// holding is an object and the share that has it.
type holding struct {
	metadata *metav1.PartialObjectMetadata
	share    *share
}

func (h holding) cluster() string {
	return h.metadata.Annotations[names.CachedFromClusterAnnotation]
}

// find returns the object of the request, in a cluster if one is given. The error is errUncached, or can be sent to a client.
func (q *searchRequest) find(cluster string) (holding, error) {
	var found []holding
	cached := false
	ctx := q.r.Context()
	for _, s := range q.Views.shares {
		response, err := s.ask(ctx, callerOf(ctx), func() *http.Request {
			r := get(ctx, q.under+objectPath(q.info), nil)
			r.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
			if cluster != "" {
				r.Header.Set(views.ClusterHeader, cluster)
			}
			return r
		})
		if err != nil {
			return holding{}, err
		}
		if response.Header.Get(views.UncachedHeader) != "" {
			response.Body.Close()
			continue
		}
		cached = true
		one := holding{&metav1.PartialObjectMetadata{}, s}
		switch err := readJSON(ctx, response, one.metadata); {
		case err == nil:
			found = append(found, one)
		case !apierrors.IsNotFound(err):
			return holding{}, err
		}
	}
	switch {
	case !cached:
		return holding{}, errUncached
	case len(found) == 0:
		return holding{}, apierrors.NewNotFound(groupResource(q.info), q.info.Name)
	case len(found) > 1:
		var clusters []string
		for _, one := range found {
			clusters = append(clusters, one.cluster())
		}
		slices.Sort(clusters)
		return holding{}, apierrors.NewConflict(groupResource(q.info), q.info.Name, fmt.Errorf("ambiguous objects in clusters [%s]; use clusters/NAME/proxy", strings.Join(clusters, ", ")))
	}
	return found[0], nil
}

// act sends the request to the member that has the object.
func (q *searchRequest) act() {
	contentType := q.r.Header.Get("Content-Type")
	if _, _, err := mime.ParseMediaType(contentType); contentType != "" && err != nil {
		q.fail(refusal(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "the header Content-Type is malformed: "+err.Error()))
		return
	}
	cluster, err := q.named()
	if err != nil {
		q.fail(err)
		return
	}
	found, err := q.find(cluster)
	switch {
	case errors.Is(err, errUncached):
		q.toFederation()
		return
	case err != nil:
		q.fail(err)
		return
	}
	to := destination{info: q.info, shown: found.metadata, cluster: found.cluster(), under: q.under}
	r, err := q.Views.translated(q.r, to)
	if err != nil {
		q.fail(err)
		return
	}
	q.Views.answered(q.w, q.Views.withoutVersion(r), to, q.Views.member(to.cluster))
}

// named returns the cluster that an update names in the annotation of the object, "" if it names none. If several clusters have the
// object, it is the one that was read.
func (q *searchRequest) named() (string, error) {
	if q.info.Verb != "update" || !hasBody(q.r, destination{info: q.info}) {
		return "", nil
	}
	mediaType, _, _ := mime.ParseMediaType(q.r.Header.Get("Content-Type"))
	if mediaType != "" && mediaType != runtime.ContentTypeJSON {
		return "", nil
	}
	body, err := forward.ReadBody(q.r)
	if err != nil {
		return "", err
	}
	clone := q.r.Clone(q.r.Context())
	forward.SetBody(clone, body)
	q.r = clone
	var object metav1.PartialObjectMetadata
	if utiljson.Unmarshal(body, &object) != nil {
		return "", nil // the member refuses it
	}
	return object.Annotations[names.CachedFromClusterAnnotation], nil
}
