package clustergateway

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustergateway/ingest"
	"github.com/cellplane/cellplane/internal/clustergateway/serve"
)

// searchStores are the stores of the kinds that ResourceRegistries select.
type searchStores struct {
	options CompletedOptions
	api     *serve.Server
	// ready is set once all that was selected at the start has been read.
	ready atomic.Bool

	mu   sync.Mutex
	open map[schema.GroupVersionKind]*searchStore
	// closing counts the stores that are being closed.
	closing sync.WaitGroup
}

type searchStore struct {
	*clustercache.Store
	resource schema.GroupVersionResource
	feeds    int
	// removed is closed when the store is about to be closed, and users count who has to stop before.
	removed chan struct{}
	users   sync.WaitGroup
}

// feed returns the feed for the objects of a kind of a member. The first one opens the store.
func (s *searchStores) feed(cluster string, kind schema.GroupVersionKind, resource metav1.APIResource) (ingest.Feed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if opened := s.open[kind]; opened != nil {
		opened.feeds++
		return opened.Feed(cluster), nil
	}
	at := kind.GroupVersion().WithResource(resource.Name)
	cached := searchedKind(kind, resource)
	store, err := clustercache.New(clustercache.Options{
		Kind:              cached,
		Incarnation:       clustercache.NewIncarnation(time.Now(), s.options.Replica),
		KeepManagedFields: s.options.KeepManagedFields,
		KeepLastApplied:   s.options.KeepLastApplied,
		History:           s.options.History,
	})
	if err != nil {
		return nil, fmt.Errorf("opening the store of %s: %w", resource.Name, err)
	}
	s.open[kind] = &searchStore{Store: store, resource: at, feeds: 1, removed: make(chan struct{})}
	s.api.AddSearched(at, cached, store)
	return store.Feed(cluster), nil
}

// searchedKind describes how the objects of a kind are cached: all of them, also if several clusters have the same name.
func searchedKind(kind schema.GroupVersionKind, resource metav1.APIResource) clustercache.Kind {
	cached := clustercache.Kind{GroupVersionKind: kind, Resource: resource.Name, Namespaced: resource.Namespaced}
	for _, known := range kinds {
		if known.GroupVersionKind == kind {
			cached.Fields = known.Fields
		}
	}
	cached.Separate, cached.ClusterAnnotation = true, names.CachedFromClusterAnnotation
	return cached
}

// use returns the store of a kind, which is not closed before done is called; nil if there is none. removed is closed when that is wanted.
func (s *searchStores) use(kind schema.GroupVersionKind) (store *clustercache.Store, removed <-chan struct{}, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	opened := s.open[kind]
	if opened == nil {
		return nil, nil, nil
	}
	opened.users.Add(1)
	return opened.Store, opened.removed, opened.users.Done
}

// release ends the use of a feed. The last one closes the store, as soon as no request uses it.
func (s *searchStores) release(kind schema.GroupVersionKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	store := s.open[kind]
	if store == nil {
		return
	}
	if store.feeds--; store.feeds > 0 {
		return
	}
	delete(s.open, kind)
	unused := s.api.RemoveSearched(store.resource)
	close(store.removed)
	s.closing.Go(func() {
		unused()
		store.users.Wait()
		store.Close()
	})
}

// note serves the stores whose objects have been read. progress is that of all kinds in all members.
func (s *searchStores) note(progress []ingest.Progress) {
	reading := map[schema.GroupVersionKind]bool{}
	for _, p := range progress {
		if p.State == ingest.Reading {
			reading[p.Kind] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, store := range s.open {
		if !reading[kind] {
			s.api.Searchable(store.resource)
		}
	}
	if len(reading) == 0 {
		s.ready.Store(true)
	}
}

// each visits the open stores.
func (s *searchStores) each(visit func(name string, store *clustercache.Store)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, store := range s.open {
		visit("search/"+store.resource.GroupResource().String()+"/"+store.resource.Version, store.Store)
	}
}

// close closes all stores. No feed, no request and no index may use them.
func (s *searchStores) close() {
	s.closing.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, store := range s.open {
		store.Close()
		delete(s.open, kind)
	}
}
