package lockedset

import (
	"sync"
	"testing"
)

func TestSet(t *testing.T) {
	var s Set[int]
	s.Remove(1)
	if s.Has(1) {
		t.Error("the zero value is not empty")
	}
	const keys = 100
	var all sync.WaitGroup
	for key := range keys {
		all.Go(func() {
			s.Add(key)
			if key%2 == 0 {
				s.Remove(key)
			}
		})
	}
	all.Wait()
	for key := range keys {
		if got, want := s.Has(key), key%2 == 1; got != want {
			t.Errorf("has %d: %t, want %t", key, got, want)
		}
	}
}
