package status

import (
	"sync"
	"time"
)

// A rollout changes the status of an object with every pod. Writing each change would cost the API server several times
// what the rollout itself costs, so the changes of an object in progress are collected: they are written when the object
// has not changed for a quiet time, at the latest after the longest time. A status that is final, or a failure, is
// written at once.
//
// When many objects are in progress at once, each takes longer and would be written more often. Then both times are
// stretched so that all of them together are written progressWrites times per second, up to the backlog time. A bare
// update costs a cell 4 to 6 ms of CPU (test/benchengine), so writing a binding and its template at this rate costs a
// few percent of a core besides their final status.
type timing struct{ quiet, longest, backlog time.Duration }

const progressWrites = 2

var (
	bindingTiming = timing{quiet: 5 * time.Second, longest: 15 * time.Second, backlog: time.Minute}
	// Few people look at Works.
	workTiming = timing{quiet: 30 * time.Second, longest: time.Minute, backlog: 3 * time.Minute}
)

// collectFor delays every write: members often answer together.
const collectFor = 10 * time.Millisecond

// debounce decides when the status of objects in progress is written.
type debounce[K comparable] struct {
	timing
	mu      sync.Mutex
	pending map[K]changes
}

// changes are the times of the first and the last change that has not been written.
type changes struct{ first, last time.Time }

func newDebounce[K comparable](t timing) *debounce[K] {
	return &debounce[K]{timing: t, pending: map[K]changes{}}
}

// changed records that an object has changed.
func (d *debounce[K]) changed(key K, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, known := d.pending[key]
	if !known {
		c.first = now
	}
	c.last = now
	d.pending[key] = c
}

// wait returns how long the status of an object in progress is held; 0 means that it is to be written.
func (d *debounce[K]) wait(key K, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, known := d.pending[key]
	if !known {
		return 0
	}
	stretched := min(time.Duration(len(d.pending))*time.Second/progressWrites, d.backlog)
	due := c.last.Add(max(d.quiet, stretched))
	if latest := c.first.Add(max(d.longest, stretched)); latest.Before(due) {
		due = latest
	}
	return max(0, due.Sub(now))
}

// written forgets the changes of an object: they have been written, or the object is gone.
func (d *debounce[K]) written(key K) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.pending, key)
}
