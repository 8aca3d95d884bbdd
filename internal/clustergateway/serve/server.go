package serve

import (
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
	"github.com/cellplane/cellplane/internal/limits"
)

// Server serves member objects.
type Server struct {
	resources map[schema.GroupVersionResource]*resource
	// Ready reports whether all members have been read. Until then nothing is served: missing objects would look deleted.
	Ready func() bool
	// Shown returns the clusters that are shown, and a channel that is closed when this changes. If all is set, all clusters are shown.
	Shown func() (clusters []string, all bool, changed <-chan struct{})
	// Metrics serves metrics.k8s.io; it may be nil.
	Metrics http.Handler
	// Budget bounds the memory in which answers are held, and Streams the watches, both by user.
	Budget  *limits.Budget
	Streams *limits.Streams
	// SearchReady reports whether all that ResourceRegistries select has been read.
	SearchReady func() bool
	searched    searched
	// Stopping is closed on shutdown: watches end, and clients reconnect elsewhere.
	Stopping <-chan struct{}
}

// New returns a Server without resources.
func New() *Server {
	return &Server{
		resources: map[schema.GroupVersionResource]*resource{},
		Budget:    limits.NewBudget(0, 0),
		Streams:   limits.NewStreams(0),
		Shown:     func() (clusters []string, all bool, changed <-chan struct{}) { return nil, true, nil },
		searched:  searched{resources: map[schema.GroupVersionResource]*searchedResource{}},
	}
}

// Add serves the objects of a store as a view. It must not be called while requests are served.
func (s *Server) Add(view views.View, kind clustercache.Kind, store *clustercache.Store) {
	for _, r := range resources(view, kind, store) {
		s.resources[r.GroupVersionResource] = r
	}
}

// AddTyped serves the objects of a store, in the encoding of package generic, as a view. It must not be called while requests are served.
func (s *Server) AddTyped(view views.View, kind clustercache.Kind, store *clustercache.Store, decode func(raw []byte) (runtime.Object, error)) {
	for _, r := range resources(view, kind, store) {
		r.generic, r.typed = true, decode
		s.resources[r.GroupVersionResource] = r
	}
}

var resolver = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, err := resolver.NewRequestInfo(r)
	if err != nil {
		WriteError(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	if !s.Ready() {
		WriteError(w, r, unready())
		return
	}
	grant := s.Budget.Open(owner(r))
	defer grant.Close()
	r = r.WithContext(limits.WithGrant(r.Context(), grant))
	if s.Metrics != nil && info.APIGroup == "metrics.k8s.io" {
		s.Metrics.ServeHTTP(w, r)
		return
	}
	for _, surface := range surfaces {
		if path, ok := strings.CutPrefix(r.URL.Path, surface.prefix); ok && (path == "" || path[0] == '/') {
			s.search(w, r, path, surface)
			return
		}
	}
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	res, found := s.resources[gvr]
	switch {
	case !info.IsResourceRequest || !found:
		http.NotFound(w, r)
	case r.Method != http.MethodGet:
		WriteError(w, r, apierrors.NewMethodNotSupported(gvr.GroupResource(), info.Verb))
	case info.Subresource == versionsSubresource:
		s.memberVersion(w, r, info, res)
	case info.Subresource == revisionSubresource:
		s.shownVersion(w, r, info, res)
	case info.Subresource != "":
		http.NotFound(w, r)
	default:
		s.serve(w, r, info, res)
	}
}

func unready() error {
	err := apierrors.NewServiceUnavailable("the cluster-gateway is still reading the clusters; try again in a moment")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, res *resource) {
	f, err := formOf(r, res)
	if err != nil {
		WriteError(w, r, err)
		return
	}
	e := &encoder{resource: res, form: f, now: time.Now()}
	warnings := warner{w.Header()}
	switch info.Verb {
	case "get":
		s.get(w, r, info, e, warnings)
	case "list", "watch":
		q, err := readQuestion(r, info, res)
		switch {
		case q != nil && res.removed != nil:
			q.changed = res.removed
		case q != nil:
			q.changed = s.limit(&q.filter)
		}
		switch {
		case err != nil && !(q != nil && q.Watch):
			WriteError(w, r, err)
		case q.Watch:
			warnings.stale(res.store.Clusters())
			s.watch(w, r, q, e, err)
		default:
			warnings.stale(res.store.Clusters())
			warnings.shadowed(res, res.store.Clusters())
			s.list(w, r, q, e)
		}
	default:
		WriteError(w, r, apierrors.NewMethodNotSupported(res.GroupResource(), info.Verb))
	}
}

// limit restricts a filter to the clusters that are shown. It returns a channel that is closed when these change.
func (s *Server) limit(filter *clustercache.Filter) <-chan struct{} {
	clusters, all, changed := s.Shown()
	if all {
		return nil
	}
	// Cluster names are valid label values.
	ours, err := labels.NewRequirement(names.ClusterLabel, selection.In, clusters)
	if err != nil {
		filter.Labels = labels.Nothing()
		return changed
	}
	if filter.Labels == nil {
		filter.Labels = labels.NewSelector()
	}
	filter.Labels = filter.Labels.Add(*ours)
	return changed
}

// Shows reports whether objects of a cluster are shown.
func (s *Server) Shows(cluster string) bool {
	clusters, all, _ := s.Shown()
	return all || slices.Contains(clusters, cluster)
}

// failed aborts a response that cannot be completed, so that the client does not take it for complete.
func failed(r *http.Request, err error) {
	if r.Context().Err() == nil {
		klog.FromContext(r.Context()).V(2).Info("could not complete a response", "path", r.URL.Path, "err", err)
	}
	panic(http.ErrAbortHandler)
}
