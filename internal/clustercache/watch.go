package clustercache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Watcher is an open watch. It must not be used concurrently.
type Watcher struct {
	store  *Store
	filter *compiled
	// at is the last event that was processed.
	at uint64
	// initial is the initial state until it was sent; keys are the rest of it, and reading its loaded part.
	initial   *List
	keys      []uint32
	reading   *reading
	read      int
	contested bool // it gets events of contested names
	bookmarks time.Duration
	quiet     time.Time // since when neither bookmark nor event was sent
	err       error
	closed    bool
}

// Watch opens a watch. The caller must Close it. The error is a 410 if it cannot continue from the given version.
func (s *Store) Watch(options WatchOptions) (*Watcher, error) {
	filter, err := s.compile(options.Filter)
	if err != nil {
		return nil, err
	}
	w := &Watcher{store: s, filter: filter, contested: options.Contested, bookmarks: options.Bookmarks, quiet: s.options.Now()}
	if options.From == 0 {
		if w.initial, err = s.List(ListOptions{Filter: options.Filter}); err != nil {
			return nil, err
		}
		w.at, w.keys, w.reading = w.initial.event, w.initial.keys, &reading{}
	} else {
		s.mu.RLock()
		w.at, err = s.eventOf(options.From)
		s.mu.RUnlock()
		if err != nil {
			return nil, err
		}
	}
	s.watchers.Add(1)
	return w, nil
}

// Initial returns the list of the initial events, or nil if there are none.
func (w *Watcher) Initial() *List { return w.initial }

// Next waits for the next event. The error is a 410 if the watcher is too slow, which ends it, or that of the context.
func (w *Watcher) Next(ctx context.Context) (*Event, error) {
	if w.err != nil {
		return nil, w.err
	}
	event, err := w.next(ctx)
	if err != nil && ctx.Err() == nil {
		w.err = err
		w.store.cut.Add(1)
	}
	return event, err
}

func (w *Watcher) next(ctx context.Context) (*Event, error) {
	if w.initial != nil {
		return w.nextInitial()
	}
	for {
		event, err := w.pending(ctx)
		if event != nil || err != nil {
			w.quiet = w.store.options.Now()
			return event, err
		}
		bookmark, err := w.wait(ctx)
		if err != nil {
			return nil, err
		}
		if bookmark {
			w.quiet = w.store.options.Now()
			return &Event{Type: watch.Bookmark, Version: w.store.options.Incarnation.version(w.at)}, nil
		}
	}
}

// nextInitial returns the next initial event, or the bookmark after them.
func (w *Watcher) nextInitial() (*Event, error) {
	if w.read == len(w.reading.loads) {
		if len(w.keys) == 0 {
			w.endInitial()
			return &Event{Type: watch.Bookmark, Version: w.store.options.Incarnation.version(w.at), InitialEventsEnd: true}, nil
		}
		n, err := w.initial.load(w.reading, w.keys)
		if err != nil {
			return nil, err
		}
		w.keys, w.read = w.keys[n:], 0
	}
	object, err := w.reading.object(w.store, w.read)
	w.read++
	if err != nil {
		return nil, err
	}
	return &Event{Type: watch.Added, Version: object.Version, Object: object.Clone()}, nil
}

func (w *Watcher) endInitial() {
	w.initial.Close()
	w.initial, w.reading, w.keys = nil, nil, nil
}

// pending returns the next available event, or nil.
func (w *Watcher) pending(ctx context.Context) (*Event, error) {
	for w.at < w.store.history.last.Load() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := w.store.change(w.at + 1)
		if err != nil {
			return nil, err
		}
		if w.contested && c.contested && c.named(w.filter) {
			w.at++
			return c.contestedEvent(w.store)
		}
		of, err := w.concerns(c)
		if err != nil {
			return nil, err
		}
		w.at++
		if of != "" {
			return c.event(w.store, of)
		}
	}
	return nil, nil
}

// concerns returns the event of a change for the watcher: objects enter and leave its selection.
func (w *Watcher) concerns(c *change) (watch.EventType, error) {
	var was, is bool
	var err error
	if c.after != nil {
		if is, err = c.after.selected(w.store, w.filter, c.n); err != nil {
			return "", err
		}
	}
	switch {
	case c.before == nil:
	case c.alike && len(w.filter.distinct) == 0:
		was = is
	default:
		if was, err = c.before.selected(w.store, w.filter, c.n); err != nil {
			return "", err
		}
	}
	switch {
	case was && is:
		return watch.Modified, nil
	case is:
		return watch.Added, nil
	case was:
		return watch.Deleted, nil
	}
	return "", nil
}

// wait returns when there may be an event, or when it is time for a bookmark.
func (w *Watcher) wait(ctx context.Context) (bookmark bool, err error) {
	var due <-chan time.Time
	if w.bookmarks > 0 {
		timer := time.NewTimer(w.bookmarks - w.store.options.Now().Sub(w.quiet))
		defer timer.Stop()
		due = timer.C
	}
	b := &w.store.broadcast
	b.waiting.Add(1)
	defer b.waiting.Add(-1)
	wake := b.wakeup()
	// An event since the last check has not woken us.
	if w.at < w.store.history.last.Load() {
		return false, nil
	}
	select {
	case <-wake:
		return false, nil
	case <-due:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Close closes the watch.
func (w *Watcher) Close() {
	if w.closed {
		return
	}
	w.closed = true
	if w.initial != nil {
		w.endInitial()
	}
	w.store.watchers.Add(-1)
}

// wakeDelay is how long the wake-up of watchers is delayed after an event. Waking thousands of them costs more than most events, so that events are batched.
const wakeDelay = time.Millisecond

// broadcast wakes watchers.
type broadcast struct {
	changes changes
	waiting atomic.Int64
	armed   atomic.Bool

	mu   sync.Mutex
	wake chan struct{}
}

func (b *broadcast) init() { b.wake = make(chan struct{}) }

// wakeup returns a channel that is closed at the next wake-up.
func (b *broadcast) wakeup() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wake
}

// signal wakes the waiting watchers soon.
func (b *broadcast) signal() {
	if b.waiting.Load() == 0 || !b.armed.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(wakeDelay, func() {
		b.armed.Store(false)
		b.mu.Lock()
		defer b.mu.Unlock()
		close(b.wake)
		b.wake = make(chan struct{})
	})
}
