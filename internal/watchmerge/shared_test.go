package watchmerge

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/sharedwatch"
	"github.com/cellplane/cellplane/internal/splice"
)

// rules say which watches join a shared stream while objects move.
type rules struct {
	hide    bool // it hides what is outdated by what the watch has shown
	behind  bool // a watch that merges by itself has read what there was when it began
	ordered bool // a watch joins without merging by itself only if the new cell of a move was read before the old one, or at the stream's beginning
}

// sharing is a history that is read while it happens: by a stream, by watches that have joined it, and by watches that merge by themselves.
type sharing struct {
	t     *rapid.T
	tb    testing.TB
	fails failer
	w     *world
	rules rules
	// now is the time up to which the history has happened.
	now     int
	watches []*watcher

	stream *sharedwatch.Stream // nil if there is none
	own    *reading            // the stream's
	start  []uint64
	events map[string]*splice.Event // of all streams
	// strict is set if no watch begins where a resumed one may be shown what the client forgot.
	strict bool
	// progress counts what has been read.
	progress int
}

// reading is a merger with the streams of the cells.
type reading struct {
	m       *sharing
	merger  *Merger
	next    []int
	queues  [][]*splice.Event
	resumed bool
	past    []uint64 // the revisions of the cells when it began
}

// watcher is a client whose watch merges by itself or reads the stream.
type watcher struct {
	client *client
	own    *reading
	reader *sharedwatch.Reader
}

func (m *sharing) begin(start []uint64) *reading {
	options := Options{Epoch: epoch, Cells: len(m.w.logs), InitialEventsEnd: true, Bookmarks: true, Moves: m.w, Start: start}
	options.Version = func(_ int, o *splice.Object) (string, bool) { return o.ResourceVersion, true }
	for i := range m.w.logs { // objects move from lower to higher cells
		options.Stages = append(options.Stages, len(m.w.logs)-i)
	}
	merger, err := New(options, noon)
	if err != nil {
		m.t.Fatal(err)
	}
	r := &reading{m: m, merger: merger, next: make([]int, len(m.w.logs)), queues: make([][]*splice.Event, len(m.w.logs)), resumed: start != nil}
	for i := range m.w.logs {
		r.past = append(r.past, m.w.version(i, m.now))
		if start != nil {
			r.seek(i, start[i])
		}
	}
	return r
}

func (r *reading) seek(i int, version uint64) {
	for log := r.m.w.logs[i]; r.next[i] < len(log) && log[r.next[i]].rv <= version; {
		r.next[i]++
	}
}

// coming returns the next change of a cell, if it has happened.
func (r *reading) coming(i int) (entry, bool) {
	if log := r.m.w.logs[i]; r.next[i] < len(log) && log[r.next[i]].time <= r.m.now {
		return log[r.next[i]], true
	}
	return entry{}, false
}

// wanted returns the cells that have something to offer.
func (r *reading) wanted() (cells []int) {
	for i := range r.next {
		_, coming := r.coming(i)
		version, _ := r.merger.Reopen(i)
		if r.merger.Wants(i) && (len(r.queues[i]) > 0 || coming || version < r.m.w.version(i, r.m.now)) {
			cells = append(cells, i)
		}
	}
	return cells
}

func (r *reading) offer(i int) []Output {
	m, version := r.m, uint64(0)
	if len(r.queues[i]) == 0 {
		version, _ = r.merger.Reopen(i)
	}
	next, coming := r.coming(i)
	var e *splice.Event
	switch {
	case len(r.queues[i]) > 0:
		e, r.queues[i] = r.queues[i][0], r.queues[i][1:]
	case !coming:
		e = bookmark(m.tb, rapid.Uint64Range(version, m.w.version(i, m.now)).Draw(m.t, "progress"), false)
	case version < next.rv-1 && rapid.IntRange(0, 4).Draw(m.t, "bookmark") == 0:
		e = bookmark(m.tb, rapid.Uint64Range(version, next.rv-1).Draw(m.t, "progress"), false)
	default:
		r.next[i]++
		if e = event(m.tb, next); r.resumed && next.rv <= r.past[i] && m.w.replacedBy(m.now, i, next) {
			e = bookmark(m.tb, next.rv, true)
		}
	}
	m.progress++
	outputs, err := r.merger.Offer(i, e, noon)
	if err != nil {
		m.t.Fatal(err)
	}
	return outputs
}

// ordered returns past times at which the cells are read one after the other, the new cell of a move before the old one, and closer together
// than a move and its cleanup.
func (m *sharing) ordered() []int {
	times, from := make([]int, len(m.w.logs)), max(0, m.now-8)
	if m.now >= m.w.cleaned {
		from = max(from, m.w.cleaned)
	}
	for i := len(times) - 1; i >= 0; i-- {
		from = rapid.IntRange(from, m.now).Draw(m.t, "read at")
		times[i] = from
	}
	return times
}

func (m *sharing) versions(times []int) (versions []uint64) {
	for i, time := range times {
		versions = append(versions, m.w.version(i, time))
	}
	return versions
}

// watchInitially begins a watch with the present objects.
func (m *sharing) watchInitially() {
	w := &watcher{own: m.begin(nil)}
	w.client = &client{t: m.fails, w: m.w, store: map[string]seen{}, initial: true, live: map[string]bool{}, started: m.ordered()}
	for i, time := range w.client.started {
		w.own.queues[i] = m.w.snapshot(m.tb, i, time)
		w.own.seek(i, m.w.version(i, time))
	}
	m.watches = append(m.watches, w)
}

// watchFromList begins a watch at a list. The watch of such a position joins a stream at once.
func (m *sharing) watchFromList() {
	times := m.ordered()
	store, consistent := m.list(times)
	if !consistent {
		for i := range times {
			times[i] = m.now
		}
		store, _ = m.list(times)
	}
	w := &watcher{client: &client{t: m.fails, w: m.w, store: store, live: map[string]bool{}}}
	m.watches = append(m.watches, w)
	m.resume(w, m.versions(times), true)
}

// list returns what a list shows that reads the cells at these times. It is not consistent if it has to look into a new cell again.
func (m *sharing) list(times []int) (shown map[string]seen, consistent bool) {
	shown, consistent = map[string]seen{}, true
	for key, o := range m.w.objects {
		old, hasOld := m.w.state(o.from, times[o.from])[key]
		copied, hasCopy := m.w.state(o.to, times[o.to])[key]
		switch {
		case hasCopy && copied.status == "", hasOld && old.status == Migrated && hasCopy:
			shown[key] = seen{copied.incarnation, copied.content}
		case hasOld && old.status == Migrated:
			consistent = false
		case hasOld:
			shown[key] = seen{old.incarnation, old.content}
		}
	}
	return shown, consistent
}

// resume continues a watch at a position.
func (m *sharing) resume(w *watcher, at []uint64, listed bool) {
	m.progress++
	w.own, w.reader = nil, nil
	w.client.at = &position.Position{Epoch: epoch, Versions: at}
	switch {
	case m.stream == nil:
		m.startStream(at)
		fallthrough
	case listed || !m.rules.ordered || slices.Equal(at, m.start):
		if w.reader, _ = m.stream.JoinAt(at); w.reader != nil {
			return
		}
	}
	w.own = m.begin(at)
}

func (m *sharing) startStream(at []uint64) {
	limits := sharedwatch.Limits{Entries: rapid.SampledFrom([]int{3, 1000}).Draw(m.t, "history"), Bytes: func() int { return 1 << 20 }}
	m.stream, m.own, m.start = sharedwatch.New(limits, at, noon, make([]bool, len(at))), m.begin(at), at
}

// join has a watch that merges by itself join the stream if it may.
func (m *sharing) join(w *watcher) {
	if !w.own.merger.Settled() {
		return
	}
	at := w.own.merger.Position()
	if m.rules.behind && !at.Covers(position.Position{Epoch: epoch, Versions: w.own.past}) {
		return
	}
	reader, joined := m.stream.JoinAt(at.Versions)
	if !joined {
		return
	}
	if outdated := w.own.merger.Outdated(); outdated != nil && m.rules.hide {
		reader.Hide(func(e *sharedwatch.Entry) bool { return outdated(e.Cell, e.Object()) })
	}
	m.progress++
	w.own, w.reader = nil, reader
}

// show applies outputs of a watch's own merger.
func (m *sharing) show(w *watcher, outputs []Output) {
	for _, o := range outputs {
		if o.Event.Type != splice.Bookmark {
			w.client.change(o)
			continue
		}
		if o.Event.InitialEventsEnd && w.client.initial {
			w.client.end()
		}
		at, err := position.Parse(o.Version)
		if err != nil {
			m.t.Fatal(err)
		}
		m.advance(w, at.Versions)
	}
}

func (m *sharing) advance(w *watcher, versions []uint64) {
	at := position.Position{Epoch: epoch, Versions: versions}
	if w.client.at != nil && !at.Covers(*w.client.at) {
		m.fails.Fatalf("the position goes from %v to %v", w.client.at, at)
	}
	w.client.at = &at
}

// share appends outputs of the stream's merger.
func (m *sharing) share(outputs []Output) {
	for _, o := range outputs {
		entry := sharedwatch.Entry{Cell: o.Cell, Received: noon}
		if o.Event.Type == splice.Bookmark {
			at, err := position.Parse(o.Version)
			if err != nil {
				m.t.Fatal(err)
			}
			entry.Bookmark, entry.Position = o.Event, at.Versions
		} else {
			entry.Key, entry.UID = o.Event.Object.Key(), o.Event.Object.UID
			_, _ = fmt.Sscan(o.Event.Object.ResourceVersion, &entry.Revision)
			m.events[fmt.Sprint(entry.Cell, "/", entry.Revision)] = o.Event
		}
		m.stream.Append(entry)
	}
}

// read has a watch read the stream. If that has ended, or gone on without it, it is resumed.
func (m *sharing) read(w *watcher) {
	entries, _, err := w.reader.Next(nil)
	for _, e := range entries {
		m.progress++
		if e.Bookmark != nil {
			m.advance(w, e.Position)
			continue
		}
		w.client.change(Output{Event: m.events[fmt.Sprint(e.Cell, "/", e.Revision)]})
	}
	if err != nil {
		m.interrupt(w)
	}
}

// interrupt has a client resume its watch.
func (m *sharing) interrupt(w *watcher) {
	at := w.client.at
	if w.reader != nil {
		at = &position.Position{Versions: w.reader.Position()}
	}
	if at == nil || w.client.initial {
		return
	}
	w.client.forgets = func(key string, _ int) bool {
		died, dead := m.w.died[w.client.store[key].incarnation]
		return dead && died <= m.now
	}
	m.resume(w, at.Versions, false)
}

// follow reads something of the cells for the stream.
func (m *sharing) follow() {
	if cells := m.own.wanted(); len(cells) > 0 {
		m.share(m.own.offer(rapid.SampledFrom(cells).Draw(m.t, "cell")))
	}
}

// readOn has a watch read something of the cells or of the stream.
func (m *sharing) readOn(w *watcher) {
	if w.reader != nil {
		m.read(w)
	} else if cells := w.own.wanted(); len(cells) > 0 {
		m.show(w, w.own.offer(rapid.SampledFrom(cells).Draw(m.t, "cell")))
	}
}

// step does something that is possible.
func (m *sharing) step() {
	what := rapid.SampledFrom([]string{"time", "time", "watch", "offer", "offer", "offer", "offer", "stream", "stream", "stream", "read", "join", "interrupt", "end"}).Draw(m.t, "what")
	var w *watcher
	if len(m.watches) > 0 {
		w = m.watches[rapid.IntRange(0, len(m.watches)-1).Draw(m.t, "watch")]
	}
	switch {
	case what == "time":
		m.now = min(m.now+rapid.IntRange(1, 4).Draw(m.t, "later"), m.w.now)
	case what == "watch" && len(m.watches) < 3 && rapid.Bool().Draw(m.t, "listed"):
		m.watchFromList()
	case what == "watch" && len(m.watches) < 3:
		m.watchInitially()
	case what == "stream" && m.stream != nil:
		m.follow()
	case w == nil:
	case what == "read" || what == "offer" && w.own != nil:
		m.readOn(w)
	case what == "join" && w.own != nil && m.stream != nil:
		m.join(w)
	case what == "join" && w.own != nil && w.own.merger.Live():
		m.startStream(m.versions(m.ordered()))
	case what == "interrupt" && !m.strict:
		m.interrupt(w)
	case what == "end" && !m.strict && m.stream != nil && rapid.IntRange(0, 3).Draw(m.t, "ends") == 0:
		m.stream.End()
		m.stream = nil
	}
}

// run lets the history happen, and compares what the clients have seen in the end with what is there.
func (m *sharing) run() {
	m.now = rapid.IntRange(0, m.w.now).Draw(m.t, "begin")
	for range rapid.IntRange(40, 120).Draw(m.t, "steps") {
		m.step()
	}
	m.now = m.w.now
	for before := -1; before != m.progress; {
		before = m.progress
		if m.stream != nil {
			m.follow()
		}
		for _, w := range m.watches {
			m.readOn(w)
		}
	}
	want := map[string]seen{}
	for key, o := range m.w.objects {
		if o.alive {
			want[key] = seen{o.current.incarnation, o.current.content}
		}
	}
	for i, w := range m.watches {
		if !maps.Equal(w.client.store, want) {
			m.fails.Fatalf("client %d has %v, want %v", i, w.client.store, want)
		}
	}
}

// replacements is a history in which objects are deleted while their slots move, and others of their names are created.
func replacements(t *rapid.T) *world {
	w := newWorld(rapid.IntRange(2, 3).Draw(t, "cells"), true)
	w.moving = true
	var keys []string
	for i := range rapid.IntRange(1, 2).Draw(t, "objects") {
		key := fmt.Sprintf("n/%c", 'a'+i)
		keys = append(keys, key)
		w.last++
		w.born[w.last] = w.now + 1
		w.objects[key] = &truth{from: 0, to: len(w.logs) - 1, alive: true, current: object{key: key, incarnation: w.last}}
		w.write(t, 0, splice.Added, w.objects[key].current)
	}
	for range rapid.IntRange(4, 12).Draw(t, "steps") {
		w.act(t, rapid.SampledFrom(keys).Draw(t, "key"), rapid.SampledFrom([]string{"update", "delete", "delete", "move"}).Draw(t, "what"))
	}
	for _, key := range keys {
		for o := w.objects[key]; o.alive && o.stage > atOld && o.stage < activated; {
			w.move(t, o)
		}
	}
	w.cleanUp(t)
	return w
}

func newSharing(t *rapid.T, tb testing.TB, fails failer, rules rules, strict bool) *sharing {
	var w *world
	if rapid.Bool().Draw(t, "replacements") {
		w = replacements(t)
	} else {
		w = history(t, 2, true)
	}
	return &sharing{t: t, tb: tb, fails: fails, w: w, rules: rules, strict: strict, events: map[string]*splice.Event{}}
}

// TestSharedStreamOfMovingObjects has watches join a stream while objects move.
func TestSharedStreamOfMovingObjects(t *testing.T) {
	for name, strict := range map[string]bool{"lists": true, "resumed": false} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				newSharing(rt, t, rt, rules{hide: true, behind: true, ordered: true}, strict).run()
			})
		})
	}
}

// noticed is what a client has noticed.
type noticed string

type notices struct{}

func (notices) Fatal(args ...any)                 { panic(noticed(fmt.Sprint(args...))) }
func (notices) Fatalf(format string, args ...any) { panic(noticed(fmt.Sprintf(format, args...))) }

// TestSharedStreamNeedsItsRules checks that clients notice when a watch joins a stream against one of the rules. The search begins near a
// history that shows it.
func TestSharedStreamNeedsItsRules(t *testing.T) {
	for name, test := range map[string]struct {
		rules rules
		seed  int
	}{
		"without hiding":             {rules{behind: true, ordered: true}, 2200},
		"before it has caught up":    {rules{hide: true, ordered: true}, 9250},
		"from an unordered position": {rules{hide: true, behind: true}, 15060},
	} {
		t.Run(name, func(t *testing.T) {
			runs := rapid.Custom(func(rt *rapid.T) (problem string) {
				defer func() {
					if p := recover(); p != nil {
						n, ok := p.(noticed)
						if !ok {
							panic(p)
						}
						problem = string(n)
					}
				}()
				newSharing(rt, t, notices{}, test.rules, false).run()
				return ""
			})
			for seed := test.seed; seed < test.seed+50000; seed++ {
				if problem := runs.Example(seed); problem != "" {
					t.Logf("seed %d: %s", seed, problem)
					return
				}
			}
			t.Error("nobody has noticed")
		})
	}
}
