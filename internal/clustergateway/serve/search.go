package serve

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustercache/generic"
	"github.com/cellplane/cellplane/internal/clustergateway/columns"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
)

// surface is a path under which the objects that ResourceRegistries select are served.
type surface struct {
	prefix string
	// listsOnly is set if an object is served as a list of those of its name, one for each cluster, and nothing is watched.
	listsOnly bool
}

var surfaces = []surface{{prefix: views.SearchPath, listsOnly: true}, {prefix: views.ProxyingPath}}

// searched are the resources that ResourceRegistries select. They come and go while requests are served.
type searched struct {
	mu        sync.RWMutex
	resources map[schema.GroupVersionResource]*searchedResource
}

type searchedResource struct {
	resource
	ready   atomic.Bool
	removed chan struct{}
	users   sync.WaitGroup
}

// AddSearched serves the objects of a store of a separate kind under SearchPath and ProxyingPath. It is not ready until Searchable.
func (s *Server) AddSearched(at schema.GroupVersionResource, kind clustercache.Kind, store *clustercache.Store) {
	added := &searchedResource{resource: *resources(views.View{Resource: at}, kind, store)[0], removed: make(chan struct{})}
	added.resource.removed = added.removed
	added.generic = generic.Needed(kind.GroupVersionKind)
	if len(kind.Fields) == 0 {
		added.printer = columns.For("") // another kind may have the name of one that has columns
	}
	s.searched.mu.Lock()
	defer s.searched.mu.Unlock()
	s.searched.resources[at] = added
}

// Searchable notes that the objects of a resource have been read.
func (s *Server) Searchable(at schema.GroupVersionResource) {
	s.searched.mu.RLock()
	defer s.searched.mu.RUnlock()
	if res := s.searched.resources[at]; res != nil {
		res.ready.Store(true)
	}
}

// RemoveSearched ends what AddSearched began. The function that it returns waits until no request uses the store any more.
func (s *Server) RemoveSearched(at schema.GroupVersionResource) (unused func()) {
	s.searched.mu.Lock()
	defer s.searched.mu.Unlock()
	res := s.searched.resources[at]
	if res == nil {
		return func() {}
	}
	delete(s.searched.resources, at)
	close(res.removed)
	return res.users.Wait
}

// use returns a resource that a request may use until it calls done; nil if there is none.
func (s *searched) use(at schema.GroupVersionResource) (res *searchedResource, done func()) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if res = s.resources[at]; res == nil {
		return nil, nil
	}
	res.users.Add(1)
	return res, res.users.Done
}

// search serves a request for objects that ResourceRegistries select. path is that of an ordinary request.
func (s *Server) search(w http.ResponseWriter, r *http.Request, path string, at surface) {
	inner := r.Clone(r.Context())
	inner.URL = &url.URL{Path: path, RawQuery: r.URL.RawQuery}
	info, err := resolver.NewRequestInfo(inner)
	switch {
	case err != nil:
		WriteError(w, r, apierrors.NewBadRequest(err.Error()))
		return
	case s.SearchReady == nil || !s.SearchReady():
		WriteError(w, r, unread("what the ResourceRegistries select"))
		return
	}
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	res, done := s.searched.use(gvr)
	if res == nil || !info.IsResourceRequest {
		w.Header().Set(views.UncachedHeader, "true")
		http.NotFound(w, r)
		return
	}
	defer done()
	switch {
	case !res.ready.Load():
		WriteError(w, r, unread(gvr.Resource))
	case r.Method != http.MethodGet || at.listsOnly && info.Verb == "watch":
		WriteError(w, r, apierrors.NewMethodNotSupported(gvr.GroupResource(), info.Verb))
	case info.Subresource == versionsSubresource:
		s.memberVersion(w, inner, info, &res.resource)
	case info.Subresource == revisionSubresource:
		s.shownVersion(w, inner, info, &res.resource)
	case info.Subresource != "":
		http.NotFound(w, r)
	case at.listsOnly:
		listed := res.resource
		listed.anyKind = true
		info.Verb = "list"
		s.serve(w, inner, info, &listed)
	case info.Verb == "get" && r.Header.Get(views.ClusterHeader) == "":
		if err := res.ambiguous(info); err != nil {
			WriteError(w, r, err)
			return
		}
		s.serve(w, inner, info, &res.resource)
	default:
		s.serve(w, inner, info, &res.resource)
	}
}

// ambiguous returns an error if several clusters have an object of the name.
func (r *searchedResource) ambiguous(info *request.RequestInfo) error {
	holders := r.store.Holders(info.Namespace, info.Name)
	if len(holders) < 2 {
		return nil
	}
	return apierrors.NewConflict(r.GroupResource(), info.Name, fmt.Errorf("ambiguous objects in clusters [%s]; use clusters/NAME/proxy", strings.Join(holders, ", ")))
}

func unread(what string) error {
	err := apierrors.NewServiceUnavailable("the cluster-gateway is still reading " + what + "; try again in a moment")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}
