package ledger

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/fleet"
)

// cache holds all objects of a cluster-scoped resource. It implements fleet.Sink.
type cache[T runtime.Object] struct {
	mu     sync.Mutex
	byName map[string]T
	seen   map[string]bool // keys of the list in progress
	synced bool
}

// watch updates the cache until the context ends.
func (m *cache[T]) watch(ctx context.Context, client rest.Interface, resource string, newList func() runtime.Object, failed func(error)) {
	fleet.Watch(ctx, sourceOf(client, resource, newList), m, failed)
}

func sourceOf(client rest.Interface, resource string, newList func() runtime.Object) fleet.Source {
	get := func(options *metav1.ListOptions) *rest.Request {
		return client.Get().Resource(resource).VersionedParams(options, metav1.ParameterCodec)
	}
	return fleet.Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := newList()
			return list, get(&options).Do(ctx).Into(list)
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return get(&options).Watch(ctx)
		},
	}
}

// Set implements fleet.Sink.
func (m *cache[T]) Set(obj runtime.Object) {
	object, ok := obj.(T)
	if !ok {
		return
	}
	described, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	described.SetManagedFields(nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byName == nil {
		m.byName = map[string]T{}
	}
	m.byName[described.GetName()] = object
	if m.seen != nil {
		m.seen[described.GetName()] = true
	}
}

// Unset implements fleet.Sink.
func (m *cache[T]) Unset(obj runtime.Object) {
	if described, err := meta.Accessor(obj); err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.byName, described.GetName())
	}
}

// Relist implements fleet.Sink.
func (m *cache[T]) Relist() func(string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = map[string]bool{}
	return func(string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for name := range m.byName {
			if !m.seen[name] {
				delete(m.byName, name)
			}
		}
		m.seen, m.synced = nil, true
	}
}

// get returns an object, and whether the cache is synced.
func (m *cache[T]) get(name string) (object T, synced bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byName[name], m.synced
}

// names returns the names of all objects, unordered.
func (m *cache[T]) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := make([]string, 0, len(m.byName))
	for name := range m.byName {
		names = append(names, name)
	}
	return names
}
