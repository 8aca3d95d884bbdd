package router

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/limits"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/sharedwatch"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/watchmerge"
)

const (
	// leastShared is the shortest duration of a watch that reads a shared stream. For others it is not worth it, and API servers send
	// them a last bookmark.
	leastShared = time.Minute
	// ownLasts is how long a watch merges the cells itself before it starts a shared stream.
	ownLasts = 5 * time.Second
	// settleWait is how long a watch from an object waits for the answer to the write of that object.
	settleWait = 250 * time.Millisecond
	// presentWait limits reading the revisions of all cells.
	presentWait = 5 * time.Second
)

// shareable reports whether the watch may read a shared stream.
func (s *watchStream) shareable() bool {
	if s.rt.streams == nil || s.shared || s.alone || !s.c.showsVersions() || s.c.Name != "" {
		return false
	}
	select {
	case <-s.c.view.Superseded():
		return false
	default:
		return time.Until(s.until) >= leastShared
	}
}

// filtered reports whether the watch selects objects. A deletion in its events may mean that the object is not selected any more.
func (s *watchStream) filtered() bool {
	return s.q.LabelSelector != nil && !s.q.LabelSelector.Empty() || s.q.FieldSelector != nil && !s.q.FieldSelector.Empty()
}

// join has a watch that begins without initial events join a stream.
func (s *watchStream) join() {
	if !s.shareable() {
		return
	}
	if s.q.after != nil && !s.filtered() {
		if s.joinAfter(*s.q.after); s.joined != nil {
			return
		}
	}
	if s.initial() {
		return
	}
	start := s.normalized(s.q.at.Versions)
	if !s.joinAt(start, nil) {
		before, listed := s.rt.issued.before(s.q.ResourceVersion)
		if !s.reached.IsZero() {
			before = s.reached
		}
		s.startStream(start, s.q.passed, before, listed && len(s.q.passed) == 0)
		s.joinAt(start, nil)
	}
}

// normalized returns a position as a merger takes it: a cell that has left and was never read need not be.
func (s *watchStream) normalized(versions []uint64) []uint64 {
	versions = slices.Clone(versions)
	for cell, least := range s.c.view.Left() {
		if versions[cell] == 0 {
			versions[cell] = least
		}
	}
	return versions
}

// joinAt joins the stream at a position. If the watch has merged the cells itself so far, its merger is given. It reports whether there is a
// stream.
func (s *watchStream) joinAt(versions []uint64, own *watchmerge.Merger) (exists bool) {
	s.joined, exists = s.rt.streams.join(s.key(), func(st *stream) *membership {
		if !s.fits(st, versions, own != nil) {
			return nil
		}
		reader, joined := st.JoinAt(versions)
		if !joined {
			return nil
		}
		if own != nil {
			if outdated := own.Outdated(); outdated != nil {
				reader.Hide(func(e *sharedwatch.Entry) bool { return outdated(e.Cell, e.Object()) })
			}
		}
		return &membership{st, reader}
	})
	return exists
}

// fits reports whether a stream shows after a position what the watch would show by itself. What that hides of objects that move depends on
// what it has read of their new cells, and of earlier topologies. It may join
//
//   - a stream that began at the same position, with the same knowledge;
//   - at the position of a list: that has read the new cell of each move before the old one, so that no later event of the old cell is about
//     an object that another one had replaced by then;
//   - after it has merged by itself until it has read all that there was when it began: what it has to hide of later events, it knows.
//
// If it began before objects moved by an earlier topology, also everything of that time must be behind it.
func (s *watchStream) fits(st *stream, versions []uint64, merged bool) bool {
	if slices.Equal(versions, st.start) && slices.EqualFunc(s.q.passed, st.passed, sameEpoch) {
		return true
	}
	if slices.ContainsFunc(s.q.passed, (*topology.View).Moving) && (st.settled == nil || !reached(versions, st.settled)) {
		return false
	}
	switch {
	case !s.c.view.Moving():
		return true
	case merged:
		return s.caughtUp(versions)
	default:
		_, listed := s.rt.issued.before(s.q.ResourceVersion)
		return listed && len(s.q.passed) == 0
	}
}

func sameEpoch(a, b *topology.View) bool { return a.Epoch() == b.Epoch() }

// reached reports whether a position is not below another in any cell.
func reached(versions, least []uint64) bool {
	for i := range least {
		if versions[i] < least[i] {
			return false
		}
	}
	return true
}

// caughtUp reports whether a watch that merges by itself has read all that the cells had when it opened them.
func (s *watchStream) caughtUp(versions []uint64) bool {
	for _, cell := range s.q.cells {
		if past := s.past[cell].Load(); !s.c.isHub(cell) && (past == 0 || versions[cell] < past) {
			return false
		}
	}
	return true
}

// joinAfter joins the stream after the change of an object, or the one that it continues.
func (s *watchStream) joinAfter(v position.Version) {
	for _, last := range []bool{false, true} {
		var object string
		s.joined, _ = s.rt.streams.join(s.key(), func(st *stream) (joined *membership) {
			if joined, object = st.joinAfter(s.rt, v); joined == nil && object == "" && st.earlier != nil {
				joined, _ = st.earlier.joinAfter(s.rt, v)
			}
			return joined
		})
		if s.joined != nil && s.joined.view.Epoch() != s.c.view.Epoch() {
			c := *s.c
			c.view = s.joined.view // by which the stream ends, and the watch goes on
			s.c, s.streamKey = &c, streamKey{}
		}
		if s.joined != nil || object == "" || last {
			return
		}
		ctx, cancel := context.WithTimeout(s.r.Context(), settleWait)
		s.rt.writes.Settle(ctx, s.c.qualified()+"/"+object) // the event may have come before the answer
		cancel()
	}
}

// joinAfter returns a membership that begins after the change of an object. If nothing is known about that, it returns the object's key.
func (st *stream) joinAfter(rt *Router, v position.Version) (joined *membership, object string) {
	cell, found := st.view.Numbered(v.Cell)
	if !found {
		return nil, ""
	}
	reader, object, ok := st.JoinAfter(int(cell), v.Revision, st.known(rt))
	if !ok {
		return nil, object
	}
	return &membership{st, reader}, ""
}

// known returns what is known about the writes of the stream's events.
func (st *stream) known(rt *Router) func(e *sharedwatch.Entry) (sharedwatch.Interval, bool) {
	return func(e *sharedwatch.Entry) (sharedwatch.Interval, bool) {
		return rt.writes.Of(e, st.view.Number(slots.Index(e.Cell)))
	}
}

// leave has a watch that merges the cells itself join a stream, if the stream has all that follows its position. It starts one after a
// while.
func (s *watchStream) leave(at position.Position, own *watchmerge.Merger) bool {
	if !s.shareable() {
		return false
	}
	exists := s.joinAt(at.Versions, own)
	if !exists && !s.tried && time.Since(s.opened) > ownLasts && time.Since(s.reached) > ownLasts {
		s.tried = true
		if !s.moves.Any() {
			s.startStream(at.Versions, s.q.passed, time.Now(), s.initial())
		} else if now, err := s.rt.present(s.r.Context(), s.c, s.q.cells); err == nil {
			s.startStream(now, nil, time.Now(), true)
		}
		s.joinAt(at.Versions, own)
	}
	return s.joined != nil
}

// present returns the present revisions of the cells. They are read in the order in which lists read them.
func (rt *Router) present(ctx context.Context, c *call, cells []slots.Index) ([]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, presentWait)
	defer cancel()
	versions := make([]uint64, c.width())
	for cell, least := range c.view.Left() {
		versions[cell] = least
	}
	stages := c.view.Stages(c.placement)
	for stage := range slices.Max(stages) + 1 {
		group, ctx := errgroup.WithContext(ctx)
		for _, cell := range cells {
			if stages[cell] != stage {
				continue
			}
			group.Go(func() (err error) {
				versions[cell], err = rt.versionOf(ctx, c, cell)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
	}
	return versions, nil
}

var batches = sync.Pool{New: func() any { return new([]sharedwatch.Entry) }}

// follow serves the watch from its stream. It reports whether the watch has to go on by itself, because the stream has failed or has
// outrun the client, or returns a position if the watch has to be continued by another topology.
func (s *watchStream) follow() (at *position.Position, alone bool) {
	joined := s.joined
	defer s.rt.streams.leave(joined.stream)
	sharedWatches.Inc()
	defer sharedWatches.Dec()
	timeout := time.NewTimer(time.Until(s.until))
	defer timeout.Stop()
	if !s.awaitBegin(joined, timeout) {
		return nil, false
	}
	for {
		wait, err := s.copyEvents(joined)
		switch {
		case errors.Is(err, sharedwatch.ErrEnded) && s.superseded():
			s.reached = time.Now()
			s.lastBookmark(joined)
			select {
			case <-time.After(rand.N(spread)):
				return &position.Position{Epoch: s.c.view.Epoch(), Versions: joined.reader.Position()}, false
			case <-s.r.Context().Done():
				return nil, false
			}
		case errors.Is(err, sharedwatch.ErrEnded), errors.Is(err, sharedwatch.ErrOutrun):
			if errors.Is(err, sharedwatch.ErrOutrun) {
				outrunWatches.Inc()
			}
			s.resumeAt(joined.reader.Position(), joined.passed)
			return nil, true
		case err != nil:
			return nil, false // the client has disconnected
		case wait == nil:
			continue
		}
		select {
		case <-wait:
		case <-timeout.C:
			s.lastBookmark(joined)
			return nil, false
		case <-s.r.Context().Done():
			return nil, false
		}
	}
}

// awaitBegin begins the answer when the stream has begun. It is false if the watch ends before.
func (s *watchStream) awaitBegin(joined *membership, timeout *time.Timer) bool {
	for {
		select {
		case <-joined.begun:
			s.begin(joined.form)
			return true
		default:
		}
		wait, err := joined.reader.Wait()
		if err != nil {
			return true // the watch finds out why
		}
		select {
		case <-joined.begun:
		case <-wait:
		case <-timeout.C:
			return false
		case <-s.r.Context().Done():
			return false
		}
	}
}

func (s *watchStream) superseded() bool {
	select {
	case <-s.c.view.Superseded():
		return true
	default:
		return false
	}
}

// resumeAt makes the watch one that begins at a position, with the knowledge of earlier topologies, and stays by itself.
func (s *watchStream) resumeAt(versions []uint64, passed []*topology.View) {
	s.alone, s.joined = true, nil
	s.q.at = &position.Position{Epoch: s.c.view.Epoch(), Versions: versions}
	s.q.passed, s.q.after, s.q.latest, s.q.SendInitialEvents = passed, nil, false, nil
	s.moves = s.rt.movesOf(s.c, s.q)
}

// copyEvents writes the next events of the stream to the client. If there are none, it returns what to wait for.
func (s *watchStream) copyEvents(joined *membership) (<-chan struct{}, error) {
	batch := batches.Get().(*[]sharedwatch.Entry)
	entries, wait, err := joined.reader.Next((*batch)[:0])
	defer func() {
		clear(entries)
		*batch = entries
		batches.Put(batch)
	}()
	bookmark, wrote, bytes := -1, false, 0
	for i := range entries {
		bytes += len(entries[i].Data)
	}
	if bytes > maxKeptBuffer { // the stream may drop them while the client does not read
		if err := forward.Hold(s.r.Context(), int64(bytes)); err != nil {
			return nil, err
		}
		defer limits.GrantFrom(s.r.Context()).Shrink(int64(bytes))
	}
	for i := range entries {
		if entries[i].Bookmark != nil {
			bookmark = i
			continue
		}
		if _, err := s.w.Write(entries[i].Data); err != nil {
			return nil, err
		}
		wrote = true
	}
	if bookmark >= 0 && s.q.AllowWatchBookmarks {
		last := entries[bookmark]
		if bookmark < len(entries)-1 {
			last.Position, last.Data = joined.reader.Position(), nil
		}
		if err := s.writeBookmark(last); err != nil {
			return nil, err
		}
		wrote = true
	}
	if wrote {
		s.flush()
	}
	return wait, err
}

// writeBookmark writes a bookmark, which is encoded already unless its position is that of this watch only.
func (s *watchStream) writeBookmark(bookmark sharedwatch.Entry) error {
	if bookmark.Data == nil {
		at := position.Position{Epoch: s.c.view.Epoch(), Versions: bookmark.Position}
		version, err := at.Encode()
		if err != nil {
			return err
		}
		bookmark.Data = s.encode(nil, watchmerge.Output{Event: bookmark.Bookmark, Version: version})
	}
	s.marked = bookmark.Position
	_, err := s.w.Write(bookmark.Data)
	return err
}

// lastBookmark writes a bookmark before the watch ends, if the position has advanced since the last one.
func (s *watchStream) lastBookmark(joined *membership) {
	at, template := joined.reader.Position(), joined.Template()
	if template == nil || !s.q.AllowWatchBookmarks || slices.Equal(at, s.marked) {
		return
	}
	if s.writeBookmark(sharedwatch.Entry{Bookmark: template, Position: at}) == nil { // the client may have disconnected
		s.flush()
	}
}
