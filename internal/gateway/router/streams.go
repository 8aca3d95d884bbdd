package router

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/limits"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/sharedwatch"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
	"github.com/cellplane/cellplane/internal/watchmerge"
)

const (
	// maxStreams is the highest number of shared streams. Further watches merge the cells themselves.
	maxStreams = 512
	// historyEntries and historyBytes bound the history of one stream, and allHistories that of all.
	historyEntries = 4096
	historyBytes   = 8 << 20
	allHistories   = 128 << 20
	// eventsHeld bounds the memory for large events while they are read.
	eventsHeld = 64 << 20
	heldWait   = 5 * time.Second
	// linger is how long a stream goes on after its last watch has left.
	linger = 10 * time.Second
)

// streams are the shared streams of a gateway.
type streams struct {
	budget *limits.Budget
	count  atomic.Int64 // that of open; a stream reads it while it is locked

	mu   sync.Mutex // locked before that of a stream
	open map[streamKey]*stream
}

func newStreams() *streams {
	return &streams{open: map[streamKey]*stream{}, budget: limits.NewBudget(eventsHeld, heldWait)}
}

// streamKey is what watches of one stream have in common. The path contains the namespace, and the query the selectors: whoever may watch
// these may see the whole stream.
type streamKey struct {
	path, query, accept string
	epoch               int64
}

// stream is a merged watch of the gateway itself.
type stream struct {
	*sharedwatch.Stream
	key streamKey
	// begun is closed when the cells have answered. The form is set before.
	begun  chan struct{}
	form   form
	cancel context.CancelFunc
	view   *topology.View
	// earlier is the stream of the topology before, if this one continues it. It is kept for a while, and guarded by streams.
	earlier *stream
	// start is where the stream began, and passed are the topologies since then, before that of its epoch.
	start  []uint64
	passed []*topology.View
	// settled are revisions that were read in the stream's epoch: what is after them needs no knowledge of earlier moves. It is nil as long as
	// there are none. It is guarded by streams.
	settled []uint64

	readers int         // guarded by streams
	idle    *time.Timer // ends the stream, guarded by streams
}

// membership is the part of a watch in a stream.
type membership struct {
	*stream
	reader *sharedwatch.Reader
}

// historySize returns how many bytes a stream may keep.
func (s *streams) historySize() int {
	return min(historyBytes, allHistories/max(int(s.count.Load()), 1))
}

// join adds a watch to a stream, if there is one that it can join.
func (s *streams) join(key streamKey, join func(*stream) *membership) (joined *membership, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.open[key]
	if st == nil {
		return nil, false
	}
	if joined = join(st); joined == nil {
		return nil, true
	}
	joined.readers++
	joined.idle.Stop()
	return joined, true
}

// leave removes a watch from its stream.
func (s *streams) leave(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.readers--; st.readers == 0 {
		st.idle.Reset(linger)
	}
}

// add adds a stream, unless there is one already or there are too many.
func (s *streams) add(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[st.key] != nil || len(s.open) >= maxStreams {
		return false
	}
	s.open[st.key] = st
	s.count.Add(1)
	st.idle = time.AfterFunc(linger, func() { s.expire(st) })
	sharedStreams.Inc()
	return true
}

// expire ends a stream without watches.
func (s *streams) expire(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.readers == 0 {
		s.remove(st)
		st.cancel()
	}
}

// used reports whether watches read a stream.
func (s *streams) used(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.readers > 0
}

// end removes a stream that has ended.
func (s *streams) end(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.idle.Stop()
	s.remove(st)
	st.End()
}

func (s *streams) remove(st *stream) {
	if s.open[st.key] == st {
		delete(s.open, st.key)
		s.count.Add(-1)
		sharedStreams.Dec()
	}
}

// ownOptions are the options of a watch that do not matter to the stream that it reads.
var ownOptions = []string{"resourceVersion", "resourceVersionMatch", "sendInitialEvents", "allowWatchBookmarks", "timeoutSeconds", "limit", "continue"}

// common returns the options of the watch that all watches of its stream have.
func (s *watchStream) common() url.Values {
	values := cloneQuery(s.q.values)
	for _, option := range ownOptions {
		values.Del(option)
	}
	if values.Has("watch") {
		values.Set("watch", "true")
	}
	return values
}

func (s *watchStream) key() streamKey {
	if s.streamKey.path == "" {
		s.streamKey = streamKey{path: s.r.URL.Path, query: s.common().Encode(), accept: s.accept, epoch: s.c.view.Epoch()}
	}
	return s.streamKey
}

// startStream starts the stream of a watch at a position of the present view, which was carried forward from those that have passed.
// Everything that it includes was committed before the time. It is settled if its revisions were read in this epoch.
func (s *watchStream) startStream(start []uint64, passed []*topology.View, before time.Time, settled bool) *stream {
	rt := s.rt
	info, view := *s.c.RequestInfo, s.c.view
	c := &call{RequestInfo: &info, view: view, placement: s.c.placement}
	q := &query{values: s.common(), cells: s.q.cells, passed: passed, at: &position.Position{Epoch: view.Epoch(), Versions: start}}
	q.AllowWatchBookmarks = true
	up := &watchStream{rt: rt, c: c, q: q, accept: s.accept, moves: rt.movesOf(c, q), opened: time.Now(), shared: true}
	options := up.options(form{})
	absent := make([]bool, options.Cells)
	for _, i := range options.Absent {
		absent[i] = true
	}
	ctx, cancel := context.WithCancel(forward.WithGateway(context.Background()))
	st := &stream{
		Stream: sharedwatch.New(sharedwatch.Limits{Entries: historyEntries, Bytes: rt.streams.historySize}, start, before, absent),
		key:    s.key(), view: view, begun: make(chan struct{}), cancel: cancel, start: slices.Clone(start), passed: passed,
	}
	if settled {
		st.settled = st.start
	}
	if !rt.streams.add(st) {
		cancel()
		return nil
	}
	grant := rt.streams.budget.Open(limits.Owner{Name: "shared watches"})
	up.r = (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: s.r.URL.Path}, Header: http.Header{}}).WithContext(limits.WithGrant(ctx, grant))
	up.begin = func(f form) {
		st.form = f
		close(st.begun)
	}
	up.send = func(events []watchmerge.Output) error { return up.share(st, events) }
	if slices.ContainsFunc(passed, (*topology.View).Moving) {
		go rt.settle(up.r.Context(), st, c, q.cells)
	}
	go func() {
		defer cancel()
		defer grant.Close()
		defer rt.streams.end(st)
		if at, err := up.merge(up.r.Context()); err != nil {
			klog.Background().V(2).Info("a shared watch has ended; its clients are served one by one", "path", st.key.path, "reason", err)
		} else if at != nil {
			up.succeed(st)
		}
	}()
	return st
}

// succeed starts the stream that continues one by the present topology. Its watches and others find it when this one ends: they go on from the
// same position, in the same order.
func (s *watchStream) succeed(st *stream) {
	streams := s.rt.streams
	if !streams.used(st) || !s.carryOn(position.Position{Epoch: st.view.Epoch(), Versions: st.Position()}) {
		return
	}
	next := s.startStream(s.normalized(s.q.at.Versions), s.q.passed, s.reached, false)
	if next == nil {
		return
	}
	next.Precede(func(cell int, write sharedwatch.Interval) bool {
		was, found := st.view.Numbered(next.view.Number(slots.Index(cell)))
		if !found {
			was = slots.None
		}
		return st.Independent(int(was), write, st.known(s.rt))
	})
	streams.mu.Lock()
	defer streams.mu.Unlock()
	next.earlier = st
	time.AfterFunc(linger, func() {
		next.Precede(nil)
		streams.mu.Lock()
		defer streams.mu.Unlock()
		next.earlier = nil
	})
}

// settle reads the present revisions of the cells for a stream that began before. Without them, watches from earlier positions do not join it.
func (rt *Router) settle(ctx context.Context, st *stream, c *call, cells []slots.Index) {
	now, err := rt.present(ctx, c, cells)
	if err != nil {
		klog.Background().V(2).Info("cannot read where the moves of an earlier topology end", "path", st.key.path, "reason", err)
		return
	}
	rt.streams.mu.Lock()
	defer rt.streams.mu.Unlock()
	st.settled = now
}

// errEventsEnd ends a shared stream after an error event. Every watch finds out itself what that means at its own position.
var errEventsEnd = errors.New("an error event came")

// share appends events to a stream. They are encoded once, for all watches.
func (s *watchStream) share(st *stream, events []watchmerge.Output) error {
	entries, now := make([]sharedwatch.Entry, 0, len(events)), time.Now()
	for _, output := range events {
		event := output.Event
		entry := sharedwatch.Entry{Received: now, Data: s.encode(nil, output)}
		switch event.Type {
		case splice.Error:
			st.Append(entries...)
			return errEventsEnd
		case splice.Bookmark:
			at, err := position.Parse(output.Version)
			if err != nil {
				return err
			}
			entry.Bookmark, entry.Position = event, at.Versions
		default:
			revision, err := strconv.ParseUint(event.Object.ResourceVersion, 10, 64)
			if err != nil {
				return err
			}
			entry.Cell, entry.Revision = output.Cell, revision
			entry.Key, entry.UID = event.Object.Key(), event.Object.UID
			if event.Type == splice.Deleted {
				entry.Deleted = event.Object.UID
			}
		}
		entries = append(entries, entry)
	}
	st.Append(entries...)
	return nil
}
