package router

import (
	"context"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/documents"
	"github.com/cellplane/cellplane/internal/gateway/durability"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/kinds"
	"github.com/cellplane/cellplane/internal/gateway/samples"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/sharedwatch"
	"github.com/cellplane/cellplane/internal/slots"
)

// Router routes requests. All fields but OwnHub, Members and Lease must be set.
type Router struct {
	// Hub is the connection to the hub.
	Hub *fleet.Upstream
	// OwnHub is a connection to the hub with the gateway's own identity. It is used if the topology includes the hub.
	OwnHub *HubAsGateway
	// Topology provides the cells.
	Topology *topology.Tracker
	// Kinds provides the resources.
	Kinds *kinds.Registry
	// Own serves the gateway's own paths: health, metrics and the like.
	Own http.Handler
	// Members serves clusters/{name}/proxy.
	Members http.Handler
	// Documents serves the hub's documents about itself, such as OpenAPI.
	Documents http.Handler
	// NamespaceExists reports whether the hub has a namespace that is not being deleted.
	NamespaceExists func(ctx context.Context, namespace string) (bool, error)
	// Lease says when the gateway may write to cells; nil means always.
	Lease Lease
	// Durability, if not nil, has writes wait for their backup cells.
	Durability *durability.Backups

	forwarder     *forward.Forwarder
	confirmations *confirmations
	samples       *samples.History
	// streams are the shared watches; nil if none are shared. writes and issued help watches to join them.
	streams *streams
	writes  *sharedwatch.Writes
	issued  *issued
}

// New completes a Router.
func New(r Router) *Router {
	r.forwarder, r.confirmations, r.samples = forward.New(), &confirmations{}, samples.New(samplesKept)
	r.streams, r.writes, r.issued = newStreams(), sharedwatch.NewWrites(writesKept), &issued{}
	return &r
}

// call is one request.
type call struct {
	*request.RequestInfo
	view      *topology.View
	placement placement.Place
	// write is how a write is being sent to a cell; nil at other times.
	write *routing.Write
	// durable is set while a write is sent whose durability the gateway takes care of.
	durable bool
	// wrote is the cell that has answered a write.
	wrote slots.Index
	// arrived is when the gateway began to serve the call. written is its write, and stamped the revision in the answer.
	arrived time.Time
	written *sharedwatch.Write
	stamped string
}

func (c *call) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: c.APIGroup, Resource: c.Resource}
}

// ServeHTTP routes a request.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, found := request.RequestInfoFrom(r.Context())
	if !found {
		forward.WriteError(w, r, apierrors.NewInternalError(errNoRequestInfo))
		return
	}
	if stopping := request.ServerShutdownSignalFrom(r.Context()); stopping != nil && longRunning(info) {
		ctx, cancel := endWith(r.Context(), stopping.ShuttingDown())
		defer cancel()
		r = r.WithContext(ctx)
	}
	switch {
	case !info.IsResourceRequest:
		rt.serveOther(w, r, info)
	case isMemberProxy(info):
		rt.Members.ServeHTTP(w, r)
	default:
		rt.serveResource(w, r, info)
	}
}

// longRunning reports whether a request may run until the gateway stops.
func longRunning(info *request.RequestInfo) bool {
	switch {
	case info.Verb == "watch":
		return true
	case info.Subresource == "":
		return false
	}
	switch info.Subresource {
	case "proxy", "log", "exec", "attach", "portforward":
		return true
	}
	return false
}

// endWith returns a context that ends with a signal. It ends watches when the gateway stops, so that clients reconnect elsewhere.
func endWith(ctx context.Context, signal <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-signal:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func isMemberProxy(info *request.RequestInfo) bool {
	return info.Subresource == "proxy" && info.Resource == "clusters" && info.APIGroup == "cluster.karmada.io"
}

func (rt *Router) serveResource(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	c := &call{RequestInfo: info, view: rt.Topology.View(), placement: rt.place(r.Context(), info), arrived: time.Now()}
	defer func() { c.written.End() }()
	if c.placement == placement.OnHub {
		rt.serveOnHub(w, r, info)
		return
	}
	if c.view == nil {
		forward.WriteError(w, r, errNoCells)
		return
	}
	switch {
	case info.Verb == "list":
		rt.list(w, r, c)
	case info.Verb == "watch":
		rt.serveWatch(w, r, c)
	case info.Verb == "create" && info.Name == "":
		rt.create(w, r, c)
	case info.Name == "" || info.Verb == "":
		forward.WriteError(w, r, apierrors.NewMethodNotSupported(c.groupResource(), strings.ToLower(r.Method)))
	default:
		rt.single(w, r, c)
	}
}

// serveOnHub serves a request for objects that live on the hub.
func (rt *Router) serveOnHub(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	if info.Verb == "list" || info.Verb == "watch" {
		if err := refuseShards(r.URL.Query()); err != nil {
			forward.WriteError(w, r, err)
			return
		}
	}
	rt.toHub(w, r)
}

// place returns where the objects of a request live. A path without a namespace may mean a cluster-scoped resource or all namespaces; the
// catalog decides. The hub refuses resources that are not in it.
func (rt *Router) place(ctx context.Context, info *request.RequestInfo) placement.Place {
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	if placement.AreBootstrapTokens(resource, info.Namespace, info.FieldSelector) {
		return placement.OnHub
	}
	if info.Namespace != "" {
		return placement.OfObject(resource, info.Namespace, info.Name)
	}
	known, found := rt.Kinds.Lookup(ctx, resource.WithVersion(info.APIVersion))
	if !found || !known.Namespaced {
		return placement.OnHub
	}
	return placement.InNamespace(resource, "")
}

// serveOther serves paths that are not resources.
func (rt *Router) serveOther(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	path := info.Path
	switch {
	case path == "/api" || path == "/apis" || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/"):
		rt.serveDiscovery(w, r, path)
	case documents.Serves(path):
		rt.Documents.ServeHTTP(w, r)
	case strings.HasPrefix(path, "/.well-known/") || strings.HasPrefix(path, "/openid/"):
		rt.toHub(w, r)
	default:
		rt.Own.ServeHTTP(w, r)
	}
}

// serveDiscovery serves discovery.
func (rt *Router) serveDiscovery(w http.ResponseWriter, r *http.Request, path string) {
	catalog := rt.Kinds.Catalog()
	if catalog == nil {
		forward.WriteError(w, r, apierrors.NewServiceUnavailable("the gateway has not loaded its API yet; try again in a moment"))
		return
	}
	handler := catalog.For(r.Context()).Handler(path)
	if handler == nil {
		http.NotFound(w, r)
		return
	}
	handler.ServeHTTP(w, r)
}

func (rt *Router) toHub(w http.ResponseWriter, r *http.Request) {
	annotate(r.Context(), "hub", "")
	rt.forwarder.To(w, r, rt.Hub, forward.Hub)
}
