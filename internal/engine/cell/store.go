package cell

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Key identifies an object of a known kind. Cluster-scoped objects have no namespace.
type Key = types.NamespacedName

// Store caches the objects of one resource. Values are condensed objects and immutable; a nil value means that there is
// none. It implements fleet.Sink.
type Store[T any] struct {
	condense func(obj runtime.Object, before *T) *T
	indexes  []*index[T]
	copies   *copies[T] // nil if a key means one object

	mu          sync.RWMutex
	entries     map[Key]entry[T]
	tombstones  map[Key]tombstone
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

// tombstone remembers a deletion, so that a late response to a write does not restore the object.
type tombstone struct {
	uid     types.UID // empty without copies
	version uint64
	dug     time.Time
}

// copies tells objects apart that have the same key, in different cells. The versions of such objects cannot be compared.
type copies[T any] struct {
	uid func(*T) types.UID
	// replaces reports whether a value takes the place of another one with another UID.
	replaces func(before, now *T) bool
}

// apart reports whether two values are different objects.
func (c *copies[T]) apart(a, b *T) bool {
	return c != nil && a != nil && b != nil && c.uid(a) != c.uid(b)
}

func (c *copies[T]) uidOf(value *T) types.UID {
	if c == nil || value == nil {
		return ""
	}
	return c.uid(value)
}

// tombstoneAge is longer than any response takes.
const tombstoneAge = 2 * time.Minute

type index[T any] struct {
	of   func(*T) []string
	keys map[string]*keySet
}

// newStore returns an empty store. Condense gets an object and its previous value; it returns nil for objects that are
// not cached.
func newStore[T any](condense func(obj runtime.Object, before *T) *T, indexes ...func(*T) []string) *Store[T] {
	s := &Store[T]{condense: condense, entries: map[Key]entry[T]{}, tombstones: map[Key]tombstone{}, synced: make(chan struct{})}
	for _, of := range indexes {
		s.indexes = append(s.indexes, &index[T]{of: of, keys: map[string]*keySet{}})
	}
	return s
}

// Subscribe registers a function that is called after every change. It must be quick. Subscribe before the first Set.
func (s *Store[T]) Subscribe(f func(key Key, old, now *T)) { s.subscribers = append(s.subscribers, f) }

// Get returns the value of a key, nil if there is none.
func (s *Store[T]) Get(key Key) *T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.entries[key].value
}

// Len returns the number of values.
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

// indexed returns the keys that an index has under a term.
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

// Set caches an object, unless a newer version is cached.
func (s *Store[T]) Set(obj runtime.Object) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	key, version := keyOf(m), Version(m.GetResourceVersion())
	before, current := s.look(key, version)
	if current && (s.copies == nil || s.copies.uidOf(before) == m.GetUID()) {
		return
	}
	value := s.condense(obj, before)
	if value == nil {
		s.remove(key, version)
		return
	}
	s.put(key, value, version)
}

// look returns the value of a key and whether it is of a version or newer. If so, it counts as seen by a list in
// progress.
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

// knows reports whether an object is cached in a version or newer.
func (s *Store[T]) knows(namespace, name, resourceVersion string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, known := s.entries[Key{Namespace: namespace, Name: name}]
	return known && e.version >= Version(resourceVersion)
}

// Unset removes a deleted object.
func (s *Store[T]) Unset(obj runtime.Object) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	if cached := s.Get(keyOf(m)); s.copies != nil && cached != nil && s.copies.uid(cached) != m.GetUID() {
		return
	}
	s.remove(keyOf(m), Version(m.GetResourceVersion()))
}

// Relist begins a list; the function ends it and removes objects that were not in it.
func (s *Store[T]) Relist() (done func(resourceVersion string)) {
	s.mu.Lock()
	s.generation++
	generation := s.generation
	s.mu.Unlock()
	return func(resourceVersion string) {
		listed, err := strconv.ParseUint(resourceVersion, 10, 64)
		merged := errors.Is(err, strconv.ErrRange) // a position in several cells, which cannot be compared with the version of an object
		s.mu.RLock()
		gone := map[Key]uint64{}
		for key, e := range s.entries {
			switch {
			case e.generation >= generation:
			case merged:
				gone[key] = e.version
			case e.version <= listed:
				gone[key] = listed
			}
		}
		s.mu.RUnlock()
		for key, version := range gone {
			s.remove(key, version)
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
	outdated := known && old.version >= version
	if s.copies.apart(old.value, value) {
		outdated = !s.copies.replaces(old.value, value)
	}
	if outdated {
		old.generation = s.generation
		s.entries[key] = old
		s.mu.Unlock()
		return
	}
	if g, buried := s.tombstones[key]; buried {
		if g.version >= version && g.uid == s.copies.uidOf(value) {
			s.mu.Unlock()
			return
		}
		delete(s.tombstones, key)
	}
	s.entries[key] = entry[T]{value: value, version: version, generation: s.generation}
	s.reindex(key, old.value, value)
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
	s.bury(key, tombstone{uid: s.copies.uidOf(old.value), version: version})
	if !known {
		s.mu.Unlock()
		return
	}
	delete(s.entries, key)
	s.reindex(key, old.value, nil)
	s.mu.Unlock()
	s.announce(key, old.value, nil)
}

// forget removes a value that was deleted, unless another one has replaced it. The event comes later, and a reader in between would delete it again.
func (s *Store[T]) forget(key Key, value *T) {
	s.mu.RLock()
	e := s.entries[key]
	s.mu.RUnlock()
	if e.value == value {
		s.remove(key, e.version)
	}
}

// bury adds a tombstone and removes old ones from time to time.
func (s *Store[T]) bury(key Key, grave tombstone) {
	now := time.Now()
	grave.dug = now
	s.tombstones[key] = grave
	if len(s.tombstones)%256 != 0 {
		return
	}
	for other, g := range s.tombstones {
		if now.Sub(g.dug) > tombstoneAge {
			delete(s.tombstones, other)
		}
	}
}

// reindex updates the indexes.
func (s *Store[T]) reindex(key Key, old, now *T) {
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

// Version makes a resourceVersion comparable; those of one API server increase.
func Version(resourceVersion string) uint64 {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return version
}
