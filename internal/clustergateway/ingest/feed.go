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
	MarkObjects(limit int) (looked int, more bool)
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
	telling bool      // its objects do not all say yet whether it is stale
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
	f.telling = f.telling || !f.stale.IsZero()
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
		f.stale, f.telling = time.Time{}, true
	}
	return true
}

// lost says that the member cannot be followed.
func (f *feed) lost(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settled = true
	if f.stale.IsZero() {
		f.stale, f.telling = now, true
		f.to.MarkStale(now)
	}
}

// tell has some objects say whether the member is stale, if they do not all say so yet. It returns how many it has looked at.
func (f *feed) tell(limit int) (looked int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.telling {
		looked, f.telling = f.to.MarkObjects(limit)
	}
	return looked
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
	f.dropped, f.telling = true, false
}

func (f *feed) isSettled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settled
}
