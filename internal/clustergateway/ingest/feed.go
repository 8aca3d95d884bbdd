package ingest

import (
	"sync"
	"time"
)

// Feed takes the objects of one kind of one member. It is satisfied by clustercache.Feed.
type Feed interface {
	Begin()
	Apply(raw []byte) error
	Delete(raw []byte) error
	End()
	MarkStale(since time.Time)
	Fresh()
	Drop()
}

// feed lets a stream and the watch over its member share a Feed.
type feed struct {
	to Feed

	mu      sync.Mutex
	stale   time.Time // since when; zero if it is followed
	settled bool      // it was listed once, or could not be
	dropped bool      // what was in it is gone, and must be listed again
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

// begin says that everything there is follows.
func (f *feed) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped = false
	f.to.Begin()
}

// end says that everything was applied since begin.
func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to.End()
	f.stale, f.settled = time.Time{}, true
}

// resumed says that nothing is missed from here on. It reports whether that can be: what has been dropped must be listed.
func (f *feed) resumed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped {
		return false
	}
	if !f.stale.IsZero() {
		f.to.Fresh()
		f.stale = time.Time{}
	}
	return true
}

// lost says that the member cannot be followed.
func (f *feed) lost(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settled = true
	if f.stale.IsZero() {
		f.stale = now
		f.to.MarkStale(now)
	}
}

// expire drops what has been stale for too long. It reports whether it did.
func (f *feed) expire(before time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped || f.stale.IsZero() || f.stale.After(before) {
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
	f.dropped = true
}

func (f *feed) isSettled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settled
}
