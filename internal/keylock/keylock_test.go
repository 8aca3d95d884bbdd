package keylock

import (
	"sync"
	"testing"
)

// TestLocks counts under locks of three keys, each of which excludes only its own users.
func TestLocks(t *testing.T) {
	var locks Locks[string]
	counts := map[string]*int{"a": new(int), "b": new(int), "c": new(int)}
	outer := locks.Lock("other")
	var wait sync.WaitGroup
	for key, count := range counts {
		for range 50 {
			wait.Go(func() {
				defer locks.Lock(key)()
				before := *count
				other := locks.Lock(key + "'") // gives way to other goroutines
				other()
				*count = before + 1
			})
		}
	}
	wait.Wait()
	for key, count := range counts {
		if *count != 50 {
			t.Errorf("%s was counted %d times, want 50", key, *count)
		}
	}
	if len(locks.held) != 1 {
		t.Errorf("%d locks are left, want one", len(locks.held))
	}
	outer()
	if len(locks.held) != 0 {
		t.Errorf("%d locks are left, want none", len(locks.held))
	}
}
