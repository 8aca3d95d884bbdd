package watchmerge

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/splice"
)

const epoch = 7

// client applies the events of a watch and checks that they are consistent.
type client struct {
	t       failer
	w       *world
	store   map[string]seen
	initial bool
	started []int // the times of the cells' snapshots
	ends    int
	at      *position.Position
	live    map[string]bool // changes seen with a position, as `cell/resourceVersion`
	// forgets reports whether an incarnation of a key may be shown after a later one; nil if none may.
	forgets func(key string, incarnation int) bool
}

// failer is told what a client notices.
type failer interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

type seen struct{ incarnation, content int }

func (a seen) before(b seen) bool {
	return a.incarnation < b.incarnation || (a.incarnation == b.incarnation && a.content < b.content)
}

func (c *client) apply(outputs []Output) {
	for _, o := range outputs {
		c.applyOne(o)
	}
}

func (c *client) applyOne(o Output) {
	p, err := position.Parse(o.Version)
	switch {
	case c.initial && o.Event.Type != splice.Bookmark:
		if o.Version != o.Event.Object.ResourceVersion {
			c.t.Fatalf("an initial event has the version %q", o.Version)
		}
	case err != nil:
		c.t.Fatalf("a %s event has the version %q: %v", o.Event.Type, o.Version, err)
	case p.Epoch != epoch:
		c.t.Fatalf("a position has the epoch %d", p.Epoch)
	case c.at != nil && (!p.Covers(*c.at) || position.Compare(p, *c.at) != 1):
		c.t.Fatalf("a %s event goes from %v to %v", o.Event.Type, c.at, p)
	default:
		c.at = &p
	}
	if o.Event.Type == splice.Bookmark {
		if o.Event.InitialEventsEnd {
			c.end()
		}
		return
	}
	c.change(o)
}

func (c *client) change(o Output) {
	key := o.Event.Object.Key()
	incarnation, _ := strconv.Atoi(o.Event.Object.UID)
	content, _ := strconv.Atoi(o.Event.Object.Annotation("content"))
	now, before := seen{incarnation, content}, c.store[key]
	if now.before(before) && (c.forgets == nil || !c.forgets(key, incarnation)) {
		c.t.Fatalf("%s went back from %+v to %+v", key, before, now)
	}
	if !c.initial {
		change := o.Event.Object.Annotation("change")
		if c.live[change] {
			c.t.Fatalf("change %s of %s was sent twice", change, key)
		}
		c.live[change] = true
	}
	if o.Event.Type != splice.Deleted {
		c.store[key] = now
		return
	}
	if !c.w.dead[incarnation] {
		c.t.Fatalf("%s appears to be deleted", key)
	}
	delete(c.store, key)
}

// end checks the store at the end of the initial events: it replaces whatever the client had before, so nothing may be missing.
func (c *client) end() {
	c.ends++
	if !c.initial || c.ends != 1 {
		c.t.Fatal("a second end of the initial events")
	}
	c.initial = false
	oldest := slices.Min(c.started)
	for key, o := range c.w.objects {
		if _, there := c.store[key]; o.alive && c.w.born[o.current.incarnation] <= oldest && !there {
			c.t.Fatalf("%s is missing from the initial events", key)
		}
	}
}

// session is a client's watch, which may use several mergers in turn.
type session struct {
	t      *rapid.T
	tb     testing.TB
	w      *world
	merger *Merger
	client *client
	next   []int             // the next entry of each cell's log
	queues [][]*splice.Event // initial events still to come
	clock  time.Time
	// resumed is set if the client saw something before this merger began.
	resumed bool
}

func (s *session) options() Options {
	options := Options{Epoch: epoch, Cells: len(s.w.logs), InitialEventsEnd: true, Bookmarks: true, Moves: s.w}
	if s.w.moving { // objects move from lower to higher cells
		for i := range s.w.logs {
			options.Stages = append(options.Stages, len(s.w.logs)-i)
		}
	}
	return options
}

// fresh restarts the watch. The cells' snapshots are of different times, but closer together than a move and its cleanup.
func (s *session) fresh() {
	s.client = &client{t: s.t, w: s.w, store: map[string]seen{}, initial: true, live: map[string]bool{}}
	s.begin(s.options())
	from, to := 0, s.w.cleaned
	if rapid.Bool().Draw(s.t, "late") {
		from, to = s.w.cleaned, s.w.now
	}
	s.client.started = make([]int, len(s.w.logs))
	for i := len(s.w.logs) - 1; i >= 0; i-- {
		at := rapid.IntRange(from, to).Draw(s.t, "snapshot")
		if s.w.moving {
			from = at // by the stages
		}
		s.client.started[i] = at
		s.queues[i] = s.w.snapshot(s.tb, i, at)
		s.seek(i, s.w.version(i, at))
	}
}

// resume continues at the client's position with a new merger.
func (s *session) resume() {
	if s.client.at == nil {
		s.fresh()
		return
	}
	options := s.options()
	options.Start = s.client.at.Versions
	s.begin(options)
	s.resumed, s.client.forgets = true, s.w.forgotten
	for i, version := range options.Start {
		s.seek(i, version)
	}
}

func (s *session) begin(options Options) {
	merger, err := New(options, s.clock)
	if err != nil {
		s.t.Fatal(err)
	}
	s.resumed = false
	s.merger, s.next, s.queues = merger, make([]int, len(s.w.logs)), make([][]*splice.Event, len(s.w.logs))
}

// seek moves a cell's stream behind a version.
func (s *session) seek(i int, version uint64) {
	s.next[i] = 0
	for s.next[i] < len(s.w.logs[i]) && s.w.logs[i][s.next[i]].rv <= version {
		s.next[i]++
	}
}

// wanted returns the cells whose events can be offered.
func (s *session) wanted() []int {
	var cells []int
	for i := range s.w.logs {
		if s.merger.Wants(i) && (len(s.queues[i]) > 0 || s.next[i] < len(s.w.logs[i])) {
			cells = append(cells, i)
		}
	}
	return cells
}

func (s *session) offer(i int) {
	var e *splice.Event
	switch {
	case len(s.queues[i]) > 0:
		e, s.queues[i] = s.queues[i][0], s.queues[i][1:]
	case rapid.IntRange(0, 4).Draw(s.t, "bookmark") == 0:
		version, _ := s.merger.Reopen(i)
		if s.next[i] < len(s.w.logs[i]) {
			version = rapid.Uint64Range(version, max(version, s.w.logs[i][s.next[i]].rv-1)).Draw(s.t, "progress")
		}
		e = bookmark(s.tb, version, false)
	case s.resumed && s.w.replaced(i, s.w.logs[i][s.next[i]]):
		e = bookmark(s.tb, s.w.logs[i][s.next[i]].rv, true)
		s.next[i]++
	default:
		e = event(s.tb, s.w.logs[i][s.next[i]])
		s.next[i]++
	}
	s.clock = s.clock.Add(time.Duration(rapid.IntRange(0, 40).Draw(s.t, "seconds")) * time.Second)
	outputs, err := s.merger.Offer(i, e, s.clock)
	if err != nil {
		s.t.Fatal(err)
	}
	s.client.apply(outputs)
}

// run offers all events of the cells, with interruptions.
func (s *session) run(interruptions int) {
	s.fresh()
	for {
		cells := s.wanted()
		if len(cells) == 0 {
			break
		}
		if interruptions > 0 && rapid.IntRange(0, 9).Draw(s.t, "interrupt") == 0 {
			interruptions--
			s.interrupt()
			continue
		}
		s.offer(rapid.SampledFrom(cells).Draw(s.t, "cell"))
	}
	for i := range s.w.logs {
		if s.next[i] < len(s.w.logs[i]) || s.merger.cells[i].held != nil {
			s.t.Fatalf("cell %d is stuck", i)
		}
	}
	if s.client.ends != 1 {
		s.t.Fatalf("%d ends of the initial events", s.client.ends)
	}
	s.check()
}

// interrupt stops the client, or breaks one cell's stream.
func (s *session) interrupt() {
	if rapid.Bool().Draw(s.t, "client") {
		s.resume()
		return
	}
	i := rapid.IntRange(0, len(s.w.logs)-1).Draw(s.t, "broken")
	version, resumable := s.merger.Reopen(i)
	if !resumable {
		s.fresh()
		return
	}
	s.seek(i, version)
}

// check compares the client's store with the true state.
func (s *session) check() {
	want := map[string]seen{}
	for key, o := range s.w.objects {
		if o.alive {
			want[key] = seen{o.current.incarnation, o.current.content}
		}
	}
	if !maps.Equal(s.client.store, want) {
		s.t.Fatalf("the client has %v, want %v", s.client.store, want)
	}
}

// history draws a world. moving is the share of objects whose slots move, in halves.
func history(t *rapid.T, moving int, hints bool) *world {
	cells := rapid.IntRange(1, 3).Draw(t, "cells")
	if moving > 0 {
		cells = max(cells, 2)
	}
	w := newWorld(cells, hints)
	w.moving = moving > 0
	var keys []string
	for i := range rapid.IntRange(1, 4).Draw(t, "objects") {
		key := fmt.Sprintf("n/%c", 'a'+i)
		from := rapid.IntRange(0, cells-1).Draw(t, "from")
		to := from
		if rapid.IntRange(0, 1).Draw(t, "moves") < moving {
			to = rapid.IntRange(from, cells-1).Draw(t, "to")
		}
		keys = append(keys, key)
		w.last++
		w.born[w.last] = w.now + 1
		w.objects[key] = &truth{from: from, to: to, alive: true, current: object{key: key, incarnation: w.last}}
		w.write(t, from, splice.Added, w.objects[key].current)
	}
	for range rapid.IntRange(0, 25).Draw(t, "steps") {
		w.step(t, rapid.SampledFrom(keys).Draw(t, "key"))
	}
	for _, key := range keys { // moves are finished
		for o := w.objects[key]; o.alive && o.stage > atOld && o.stage < activated; {
			w.move(t, o)
		}
	}
	w.cleanUp(t)
	return w
}

func TestMergedWatch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &session{t: rt, tb: t, w: history(rt, 0, false)}
		s.run(4)
		for i, log := range s.w.logs { // every change since the last start was sent once
			for _, e := range log {
				change := fmt.Sprintf("%d/%d", e.cell, e.rv)
				if want := e.rv > s.w.version(i, s.client.started[i]); s.client.live[change] != want {
					rt.Fatalf("change %s seen: %v, want %v", change, !want, want)
				}
			}
		}
	})
}

func TestMovingObjectsInMergedWatch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &session{t: rt, tb: t, w: history(rt, 2, true)}
		s.run(4)
	})
}
