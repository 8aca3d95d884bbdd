package views

import (
	"context"
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/clustergateway/views"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/router"
)

// Options are the resources to show and their sources.
type Options struct {
	// Shares are the cluster-gateways: the replicas of a share serve the same clusters.
	Shares [][]*fleet.Upstream
	// Resources are the member views, in every group and version that serves them.
	Resources map[schema.GroupVersionResource]bool
	// Merged serves lists and watches over all shares, if there are several.
	Merged http.Handler
	// Next serves everything else: templates and what is not a view.
	Next http.Handler
	// Members serves clusters/{name}/proxy.
	Members http.Handler
	// Template reads the JSON of the template of a request with the identity of the gateway.
	Template func(ctx context.Context, info *request.RequestInfo) ([]byte, error)
}

// Views is a handler for the objects of members.
type Views struct {
	Options
	shares []*share
}

// New returns Views.
func New(options Options) *Views {
	v := &Views{Options: options}
	for _, replicas := range options.Shares {
		s := &share{}
		for _, upstream := range replicas {
			s.replicas = append(s.replicas, &replica{upstream: upstream})
		}
		v.shares = append(v.shares, s)
	}
	return v
}

// Run probes the cluster-gateways until the context ends.
func (v *Views) Run(ctx context.Context) {
	for _, s := range v.shares {
		s.watch(ctx)
	}
	<-ctx.Done()
}

// ServeHTTP serves requests for objects of members, and leaves the rest to Next.
func (v *Views) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, found := request.RequestInfoFrom(r.Context())
	if !found {
		forward.WriteError(w, r, apierrors.NewInternalError(errors.New("the request was not resolved before it was routed")))
		return
	}
	if !v.shows(r, info) {
		v.Next.ServeHTTP(w, r)
		return
	}
	switch {
	case info.APIGroup == metricsGroup:
		v.read(w, r, info)
	case info.Subresource == "" && (info.Verb == "get" || info.Verb == "list" || info.Verb == "watch"):
		v.read(w, r, info)
	case info.Verb == "create" && info.Name == "":
		v.answered(w, r, destination{info: info}, v.Next) // creates make templates
	case info.Name == "":
		v.Next.ServeHTTP(w, r)
	default:
		v.act(w, r, info)
	}
}

// metricsGroup is the API group of resource metrics. It is read-only, and served by the members.
const metricsGroup = "metrics.k8s.io"

// shows reports whether a request is for a member view.
func (v *Views) shows(r *http.Request, info *request.RequestInfo) bool {
	resource := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	switch {
	case !info.IsResourceRequest || len(v.shares) == 0:
		return false
	case resource == views.Metrics:
		return info.Subresource == "" && (info.Verb == "get" || info.Verb == "list" || info.Verb == "watch")
	case router.OnFederationSurface(r.Context()):
		return false
	}
	if info.APIGroup == metricsGroup {
		return info.Subresource == "" && (info.Verb == "get" || info.Verb == "list")
	}
	return v.Resources[resource]
}

// Ready returns for each share the index of its first replica that is ready, or 0.
func (v *Views) Ready() []int {
	chosen := make([]int, len(v.shares))
	for i, s := range v.shares {
		chosen[i] = max(slices.IndexFunc(s.replicas, func(r *replica) bool { return r.ready.Load() }), 0)
	}
	return chosen
}

func callerOf(ctx context.Context) string {
	if caller, found := request.UserFrom(ctx); found {
		return caller.GetName()
	}
	return ""
}
