package cell

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Key names an object of a known kind. Cluster-scoped objects have no namespace.
type Key = types.NamespacedName

// Store is the picture of one collection. Values are condensed objects that nobody changes; a nil value means that
// there is none. It implements fleet.Sink.
type Store[T any] struct {
	condense func(obj runtime.Object, before *T) *T
	indexes  []*index[T]

	mu          sync.RWMutex
	entries     map[Key]entry[T]
	graves      map[Key]grave
	generation  uint64 // counts lists
	synced      chan struct{}
	isSynced    bool
	subscribers []func(key Key, old, now *T)
}

type entry[T any] struct {
	value      *T
	version    uint64
	generation uint64 // the list that last saw it
}

// grave remembers that an object is gone, so that a late answer to a write does not bring it back.
type grave struct {
	version uint64
	dug     time.Time
}

// graveAge is longer than any answer takes.
const graveAge = 2 * time.Minute

type index[T any] struct {
	of   func(*T) []string
	keys map[string]*keySet
}

// newStore returns an empty store. The function condenses an object, of which it may be told what was known before, and
// returns nil for what is not to be kept.
func newStore[T any](condense func(obj runtime.Object, before *T) *T, indexes ...func(*T) []string) *Store[T] {
	s := &Store[T]{condense: condense, entries: map[Key]entry[T]{}, graves: map[Key]grave{}, synced: make(chan struct{})}
	for _, of := range indexes {
		s.indexes = append(s.indexes, &index[T]{of: of, keys: map[string]*keySet{}})
	}
	return s
}

// Subscribe has a function called after every change. It must be quick. All subscriptions come before the first Set.
func (s *Store[T]) Subscribe(f func(key Key, old, now *T)) { s.subscribers = append(s.subscribers, f) }

// Get returns the value of a key, nil if there is none.
func (s *Store[T]) Get(key Key) *T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.entries[key].value
}

// Len returns how many values there are.
func (s *Store[T]) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.entries)
}

// All returns all values, in no order.
func (s *Store[T]) All() []*T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*T, 0, len(s.entries))
	for _, e := range s.entries {
		all = append(all, e.value)
	}
	return all
}

// Keys returns all keys, in no order.
func (s *Store[T]) Keys() []Key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	keys := make([]Key, 0, len(s.entries))
	for key := range s.entries {
		keys = append(keys, key)
	}
	return keys
}

// indexed returns the keys that an index files under a term.
func (s *Store[T]) indexed(i int, term string) []Key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.indexes[i].keys[term].all()
}

// terms returns the terms of an index.
func (s *Store[T]) terms(i int) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	terms := make([]string, 0, len(s.indexes[i].keys))
	for term := range s.indexes[i].keys {
		terms = append(terms, term)
	}
	return terms
}

// Synced is closed when the collection has been listed once.
func (s *Store[T]) Synced() <-chan struct{} { return s.synced }

// Set takes over an object, unless a newer version of it is known.
func (s *Store[T]) Set(obj runtime.Object) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	key, version := keyOf(m), Version(m.GetResourceVersion())
	before, current := s.look(key, version)
	if current {
		return
	}
	value := s.condense(obj, before)
	if value == nil {
		s.remove(key, version)
		return
	}
	s.put(key, value, version)
}

// look returns the value of a key and whether it is of a version or a newer one. If so it counts as seen by a list that
// is under way.
func (s *Store[T]) look(key Key, version uint64) (value *T, current bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, known := s.entries[key]
	if !known || e.version < version {
		return e.value, false
	}
	if e.generation != s.generation {
		e.generation = s.generation
		s.entries[key] = e
	}
	return e.value, true
}

// knows tells whether an object is known in a version or a newer one.
func (s *Store[T]) knows(namespace, name, resourceVersion string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, known := s.entries[Key{Namespace: namespace, Name: name}]
	return known && e.version >= Version(resourceVersion)
}

// Unset takes note of a deletion.
func (s *Store[T]) Unset(obj runtime.Object) {
	if m, err := meta.Accessor(obj); err == nil {
		s.remove(keyOf(m), Version(m.GetResourceVersion()))
	}
}

// Relist begins a list; the function ends it and removes what was not seen.
func (s *Store[T]) Relist() (done func(resourceVersion string)) {
	s.mu.Lock()
	s.generation++
	generation := s.generation
	s.mu.Unlock()
	return func(resourceVersion string) {
		listed := Version(resourceVersion)
		s.mu.RLock()
		var gone []Key
		for key, e := range s.entries {
			if e.generation < generation && e.version <= listed {
				gone = append(gone, key)
			}
		}
		s.mu.RUnlock()
		for _, key := range gone {
			s.remove(key, listed)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.isSynced {
			s.isSynced = true
			close(s.synced)
		}
	}
}

func (s *Store[T]) put(key Key, value *T, version uint64) {
	s.mu.Lock()
	old, known := s.entries[key]
	if known && old.version >= version {
		old.generation = s.generation
		s.entries[key] = old
		s.mu.Unlock()
		return
	}
	if g, buried := s.graves[key]; buried {
		if g.version >= version {
			s.mu.Unlock()
			return
		}
		delete(s.graves, key)
	}
	s.entries[key] = entry[T]{value: value, version: version, generation: s.generation}
	s.file(key, old.value, value)
	s.mu.Unlock()
	s.announce(key, old.value, value)
}

func (s *Store[T]) remove(key Key, version uint64) {
	s.mu.Lock()
	old, known := s.entries[key]
	if known && old.version > version {
		s.mu.Unlock()
		return
	}
	s.dig(key, version)
	if !known {
		s.mu.Unlock()
		return
	}
	delete(s.entries, key)
	s.file(key, old.value, nil)
	s.mu.Unlock()
	s.announce(key, old.value, nil)
}

// dig buries a key and levels old graves from time to time.
func (s *Store[T]) dig(key Key, version uint64) {
	now := time.Now()
	s.graves[key] = grave{version: version, dug: now}
	if len(s.graves)%256 != 0 {
		return
	}
	for other, g := range s.graves {
		if now.Sub(g.dug) > graveAge {
			delete(s.graves, other)
		}
	}
}

// file keeps the indexes in step.
func (s *Store[T]) file(key Key, old, now *T) {
	for _, ix := range s.indexes {
		if old != nil {
			for _, term := range ix.of(old) {
				if set := ix.keys[term]; set.remove(key) {
					delete(ix.keys, term)
				}
			}
		}
		if now != nil {
			for _, term := range ix.of(now) {
				if ix.keys[term] == nil {
					ix.keys[term] = &keySet{}
				}
				ix.keys[term].add(key)
			}
		}
	}
}

func (s *Store[T]) announce(key Key, old, now *T) {
	for _, subscriber := range s.subscribers {
		subscriber(key, old, now)
	}
}

func keyOf(m metav1.Object) Key { return Key{Namespace: m.GetNamespace(), Name: m.GetName()} }

// Version makes a resourceVersion comparable; those of one API server count upwards.
func Version(resourceVersion string) uint64 {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return version
}
