package ingest

import (
	"sync"
	"time"
)

// Feed receives the objects of one kind of one member. clustercache.Feed implements it.
type Feed interface {
	Begin()
	Apply(raw []byte) error
	Delete(raw []byte) error
	End()
	MarkStale(since time.Time)
	MarkObjects(limit int) (looked int, more bool)
	Fresh()
	Drop()
}

// feed serializes the use of a Feed by a stream and by the probes of its member.
type feed struct {
	to Feed

	mu      sync.Mutex
	stale   time.Time // since when; zero while it is watched
	listing time.Time // since when a list is being read, or zero
	listed  bool      // it was listed once, or could not be
	dropped bool      // its objects were removed; the next list restores them
	marking bool      // some objects have an outdated stale mark
}

func (f *feed) apply(raw []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.to.Apply(raw)
}

func (f *feed) delete(raw []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.to.Delete(raw)
}

// begin starts a list.
func (f *feed) begin(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped { // nothing is shown that could be stale
		f.dropped, f.stale = false, time.Time{}
	}
	f.listing = now
	f.to.Begin()
}

// end ends a list: all objects were applied since begin. It returns false if they were dropped meanwhile and must be listed again.
func (f *feed) end() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listing = time.Time{}
	if f.dropped {
		return false
	}
	f.to.End()
	f.marking = f.marking || !f.stale.IsZero()
	f.stale, f.listed = time.Time{}, true
	return true
}

// resumed records that no event was missed. It returns false if that is not enough, because the objects were dropped and must be listed.
func (f *feed) resumed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped {
		return false
	}
	if !f.stale.IsZero() {
		f.to.Fresh()
		f.stale, f.marking = time.Time{}, true
	}
	return true
}

// lost records that the member cannot be watched.
func (f *feed) lost(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed, f.listing = true, time.Time{}
	if f.stale.IsZero() {
		f.stale, f.marking = now, true
		f.to.MarkStale(now)
	}
}

// mark updates the stale marks of some objects, if any are outdated. It returns how many objects it has checked.
func (f *feed) mark(limit int) (looked int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.marking {
		looked, f.marking = f.to.MarkObjects(limit)
	}
	return looked
}

// expire drops the objects if they have been stale for too long, and are not just being listed. It reports whether it did.
func (f *feed) expire(before time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped || f.stale.IsZero() || f.stale.After(before) || f.listing.After(before) {
		return false
	}
	f.drop()
	return true
}

func (f *feed) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop()
}

func (f *feed) drop() {
	f.to.Drop()
	f.dropped, f.marking = true, false
}

func (f *feed) isFollowed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listed && f.stale.IsZero()
}

func (f *feed) isListed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listed
}
