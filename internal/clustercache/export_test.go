package clustercache

import (
	"context"
	"fmt"
)

// Pending returns the next available event, or nil.
func (w *Watcher) Pending() (*Event, error) {
	if w.initial != nil {
		return w.nextInitial()
	}
	return w.pending(context.Background())
}

// RecentBytes returns the size of the changes that are kept for all watchers, and the bound.
func (s *Store) RecentBytes() (bytes, bound int) {
	s.broadcast.changes.mu.Lock()
	defer s.broadcast.changes.mu.Unlock()
	total := 0
	for i := range s.broadcast.changes.slots {
		if c := s.broadcast.changes.slots[i].Load(); c != nil {
			total += c.size()
		}
	}
	return max(total, s.broadcast.changes.bytes), recentBytes
}

// Trim removes all history.
func (s *Store) Trim() {
	s.mu.Lock()
	defer s.mu.Unlock()
	usual := s.history.usual
	s.history.usual = 0
	for s.history.len() > 0 {
		s.history.trim(never, s.forget)
	}
	s.history.usual = usual
}

// Leftovers returns an error if an empty store still holds something.
func (s *Store) Leftovers() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a := &s.attributes
	counts := map[string]int{
		"bytes": int(s.arena.Used()), "keys": s.keys.Len(), "entries": s.entries.Len(), "templates": s.templates.table.Len(), "groups": len(s.templates.groups),
		"namespaces": s.namespaces.Len(), "namespace order": len(s.namespaceOrder), "by namespace": s.byNamespace.Len(),
		"pins": len(s.pins.counts), "shown": s.shown, "shadowed": s.shadowed, "encoded bytes": int(s.encodedBytes),
	}
	for i, interner := range a.interners() {
		counts[fmt.Sprint("interner ", i)] = interner.Len()
	}
	for i, set := range a.sets() {
		counts[fmt.Sprint("index ", i)] = set.Len()
	}
	for name, count := range counts {
		if count != 0 {
			return fmt.Errorf("%s: %d", name, count)
		}
	}
	return nil
}

// Looked returns how many keys a list with a filter visits at most.
func (s *Store) Looked(f Filter) (int, error) {
	filter, err := s.compile(f)
	if err != nil {
		return 0, err
	}
	g := gathering{store: s, matcher: matcher{compiled: filter}}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return max(0, g.plan().cost), nil
}
