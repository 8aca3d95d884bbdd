package sharedwatch

import (
	"context"
	"sync"
	"time"
)

// Interval is the time in which a write was done: it was committed after Begun, and before Ended.
type Interval struct{ Begun, Ended time.Time }

// Writes remembers the last writes of a gateway. It is safe for concurrent use.
type Writes struct {
	most int

	mu     sync.Mutex
	done   map[change]Interval
	order  []change // a ring of the keys of done
	oldest int
	busy   map[string]*pending // writes under way, by object
}

// change identifies a write by the revision that it made, or by the UID of the object that it deleted.
type change struct {
	cell     uint16
	revision uint64
	deleted  string
}

type pending struct {
	count int
	done  chan struct{}
}

// NewWrites returns a log of at most a number of writes.
func NewWrites(most int) *Writes {
	return &Writes{most: most, done: map[change]Interval{}, busy: map[string]*pending{}}
}

// Write is a write under way. All methods may be called on a nil Write.
type Write struct {
	log    *Writes
	object string
	begun  time.Time
	over   bool
}

// Begin notes that a write of an object has begun at a time.
func (w *Writes) Begin(object string, begun time.Time) *Write {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[object] == nil {
		w.busy[object] = &pending{done: make(chan struct{})}
	}
	w.busy[object].count++
	return &Write{log: w, object: object, begun: begun}
}

// Made notes the revision that the write has made.
func (w *Write) Made(cell uint16, revision uint64) { w.note(change{cell: cell, revision: revision}) }

// Deleted notes that the write has deleted the object with a UID.
func (w *Write) Deleted(uid string) { w.note(change{deleted: uid}) }

func (w *Write) note(c change) {
	if w == nil {
		return
	}
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	if _, known := w.log.done[c]; known {
		return // it was made by an earlier one, and this one has changed nothing
	}
	w.log.done[c] = Interval{w.begun, time.Now()}
	if len(w.log.order) < w.log.most {
		w.log.order = append(w.log.order, c)
		return
	}
	delete(w.log.done, w.log.order[w.log.oldest])
	w.log.order[w.log.oldest] = c
	w.log.oldest = (w.log.oldest + 1) % w.log.most
}

// End must be called when the write is over.
func (w *Write) End() {
	if w == nil || w.over {
		return
	}
	w.over = true
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	if p := w.log.busy[w.object]; p.count > 1 {
		p.count--
	} else {
		delete(w.log.busy, w.object)
		close(p.done)
	}
}

// Of returns when the change of an entry was made, if that is known. The number is that of its cell.
func (w *Writes) Of(e *Entry, number uint16) (Interval, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Deleted != "" {
		if i, known := w.done[change{deleted: e.Deleted}]; known {
			return i, true
		}
	}
	i, known := w.done[change{cell: number, revision: e.Revision}]
	// What was received before the write began was made by another: the write has changed nothing.
	return i, known && !e.Received.Before(i.Begun)
}

// Settle waits until no write of an object is under way, or the context ends.
func (w *Writes) Settle(ctx context.Context, object string) {
	for {
		w.mu.Lock()
		p := w.busy[object]
		w.mu.Unlock()
		if p == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-p.done:
		}
	}
}
