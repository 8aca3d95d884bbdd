// Package lockedset is a set for concurrent use.
package lockedset

import "sync"

// Set is a set of keys. The zero value is empty.
type Set[K comparable] struct {
	mu   sync.Mutex
	keys map[K]struct{}
}

// Add adds a key.
func (s *Set[K]) Add(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = map[K]struct{}{}
	}
	s.keys[key] = struct{}{}
}

// Remove removes a key.
func (s *Set[K]) Remove(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, key)
}

// Has reports whether a key is in the set.
func (s *Set[K]) Has(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.keys[key]
	return has
}
