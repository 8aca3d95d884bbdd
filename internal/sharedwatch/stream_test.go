package sharedwatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/splice"
)

// written is a change in a cell of the model.
type written struct {
	cell                    int
	revision                uint64
	begun, committed, acked int
	known                   bool // the gateway of the stream has made it
}

// watcher is a watch of the model.
type watcher struct {
	reader *Reader
	// position is where the watch is while it has no reader.
	position []uint64
	seen     []written
	// after is the change that the watch began with; nil if it began at start.
	after *written
	start []uint64
}

// model is a history of cells, a stream that merges them, and its watchers.
type model struct {
	clock    int
	logs     [][]written
	flying   []*written // committed, and not acknowledged
	writes   *Writes
	stream   *Stream
	read     []uint64 // how far the stream has read the cells
	order    []written
	watchers []*watcher
}

func at(tick int) time.Time { return time.Unix(0, int64(tick)) }

func (m *model) tick() int { m.clock++; return m.clock }

func (m *model) last(cell int) uint64 {
	if n := len(m.logs[cell]); n > 0 {
		return m.logs[cell][n-1].revision
	}
	return 1
}

// now is a position that a client may have: the revisions of the cells at different times.
func (m *model) now(t *rapid.T) []uint64 {
	position := make([]uint64, len(m.logs))
	for i := range position {
		position[i] = rapid.Uint64Range(1, m.last(i)).Draw(t, "position")
	}
	return position
}

func (m *model) begin(start []uint64) {
	limits := Limits{Entries: 12, Bytes: func() int { return 12 * (overhead + 40) }}
	m.stream, m.read = New(limits, start, at(m.tick()), make([]bool, len(m.logs))), slices.Clone(start)
	m.order = nil
}

func (m *model) write(t *rapid.T) {
	if len(m.flying) > 0 && rapid.Bool().Draw(t, "acknowledge") {
		i := rapid.IntRange(0, len(m.flying)-1).Draw(t, "which")
		m.flying[i].acked = m.tick()
		m.note(m.flying[i])
		m.flying = slices.Delete(m.flying, i, i+1)
		return
	}
	cell := rapid.IntRange(0, len(m.logs)-1).Draw(t, "cell")
	w := written{cell: cell, revision: m.last(cell) + rapid.Uint64Range(1, 3).Draw(t, "gap"), known: rapid.IntRange(0, 3).Draw(t, "known") > 0}
	w.begun = rapid.IntRange(max(m.clock-6, 0), m.clock).Draw(t, "begun")
	w.committed = m.tick()
	m.logs[cell] = append(m.logs[cell], w)
	m.flying = append(m.flying, &w)
}

// note tells the gateway about its own write.
func (m *model) note(w *written) {
	if w.known {
		m.writes.done[change{cell: uint16(w.cell), revision: w.revision}] = Interval{at(w.begun), at(w.acked)}
	}
}

// pending returns the next change of a cell after a revision.
func (m *model) pending(cell int, revision uint64) *written {
	for i := range m.logs[cell] {
		if m.logs[cell][i].revision > revision {
			return &m.logs[cell][i]
		}
	}
	return nil
}

// merge has the stream read the next change of a cell.
func (m *model) merge(t *rapid.T) {
	cell := rapid.IntRange(0, len(m.logs)-1).Draw(t, "cell")
	next := m.pending(cell, m.read[cell])
	if next == nil || m.stream.ended {
		return
	}
	m.read[cell] = next.revision
	m.order = append(m.order, *next)
	entries := []Entry{{Cell: cell, Revision: next.revision, Received: at(m.tick()), Data: make([]byte, rapid.IntRange(1, 80).Draw(t, "size"))}}
	if rapid.Bool().Draw(t, "bookmark") {
		entries = append(entries, Entry{Bookmark: &splice.Event{}, Position: slices.Clone(m.read), Received: at(m.clock)})
	}
	m.stream.Append(entries...)
}

func (m *model) known(e *Entry) (Interval, bool) { return m.writes.Of(e, uint16(e.Cell)) }

// open begins a watch, at a position or after a change.
func (m *model) open(t *rapid.T) {
	if len(m.order) > 0 && rapid.Bool().Draw(t, "after an object") {
		after := m.order[rapid.IntRange(max(0, len(m.order)-14), len(m.order)-1).Draw(t, "after")]
		reader, _, joined := m.stream.JoinAfter(after.cell, after.revision, m.known)
		if joined {
			m.watchers = append(m.watchers, &watcher{reader: reader, after: &after, start: reader.Position()})
		}
		return
	}
	w := &watcher{start: m.now(t)}
	w.position = slices.Clone(w.start)
	w.reader, _ = m.stream.JoinAt(w.position)
	m.watchers = append(m.watchers, w)
}

// step has a watch go on: by itself, or with the stream.
func (m *model) step(t *rapid.T) {
	if len(m.watchers) == 0 {
		return
	}
	w := m.watchers[rapid.IntRange(0, len(m.watchers)-1).Draw(t, "watcher")]
	if w.reader == nil {
		m.alone(t, w)
		return
	}
	m.together(t, w)
}

// alone reads one change from the cell itself, and then tries to join the stream.
func (m *model) alone(t *rapid.T, w *watcher) {
	cell := rapid.IntRange(0, len(m.logs)-1).Draw(t, "cell")
	if next := m.pending(cell, w.position[cell]); next != nil {
		w.position[cell] = next.revision
		w.seen = append(w.seen, *next)
	}
	w.reader, _ = m.stream.JoinAt(w.position)
}

func (m *model) together(t *rapid.T, w *watcher) {
	entries, _, err := w.reader.Next(nil)
	for _, e := range entries {
		if e.Bookmark != nil {
			m.checkBookmark(t, w, &e)
			continue
		}
		w.see(m, e.Cell, e.Revision)
	}
	if err != nil { // outrun or ended
		w.position, w.reader = w.reader.Position(), nil
	}
}

func (w *watcher) see(m *model, cell int, revision uint64) {
	i := slices.IndexFunc(m.logs[cell], func(c written) bool { return c.revision == revision })
	w.seen = append(w.seen, m.logs[cell][i])
}

// checkBookmark checks that a watch can be resumed at a bookmark: all that it has seen is below, and nothing else.
func (m *model) checkBookmark(t *rapid.T, w *watcher, e *Entry) {
	var want, got []string
	for cell, log := range m.logs {
		for _, c := range log {
			if c.revision > w.start[cell] && c.revision <= e.Position[cell] {
				want = append(want, fmt.Sprint(c.cell, ":", c.revision))
			}
		}
	}
	for _, c := range w.seen {
		got = append(got, fmt.Sprint(c.cell, ":", c.revision))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("a bookmark at %v after %v, which began at %v: want %v", e.Position, got, w.start, want)
	}
}

// finish reads all that there is.
func (m *model) finish(t *rapid.T) {
	for cell := range m.logs {
		for m.pending(cell, m.read[cell]) != nil && !m.stream.ended {
			next := m.pending(cell, m.read[cell])
			m.read[cell] = next.revision
			m.order = append(m.order, *next)
			m.stream.Append(Entry{Cell: cell, Revision: next.revision, Received: at(m.tick())})
		}
	}
	m.stream.End()
	for _, w := range m.watchers {
		for w.reader != nil {
			m.together(t, w)
		}
		for cell := range m.logs {
			for next := m.pending(cell, w.position[cell]); next != nil; next = m.pending(cell, w.position[cell]) {
				w.position[cell] = next.revision
				w.seen = append(w.seen, *next)
			}
		}
	}
}

// check compares what the watches have seen with what has happened.
func (m *model) check(t *rapid.T) {
	for _, w := range m.watchers {
		seen := map[string]bool{}
		last := slices.Clone(w.start)
		for _, c := range w.seen {
			if c.revision <= last[c.cell] {
				t.Fatalf("a watch from %v saw %v twice, or in the wrong order: %v", w.start, c, w.seen)
			}
			last[c.cell], seen[fmt.Sprint(c.cell, ":", c.revision)] = c.revision, true
		}
		for cell, log := range m.logs {
			for _, c := range log {
				if c.revision > w.start[cell] != seen[fmt.Sprint(cell, ":", c.revision)] {
					t.Fatalf("a watch from %v: change %v, seen: %v", w.start, c, w.seen)
				}
				// What somebody did who had seen the object comes after the object.
				if w.after != nil && c.begun > w.after.committed && c.revision <= w.start[cell] {
					t.Fatalf("a watch from the object of %v never sees %v", w.after, c)
				}
			}
		}
	}
}

// TestStream compares a stream and its readers with a model: whatever the order in which the cells are read, however slow the readers
// are, and however often the stream ends and another begins, no watch misses an event or sees one twice.
func TestStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{logs: make([][]written, rapid.IntRange(1, 3).Draw(t, "cells")), writes: NewWrites(1000), clock: 10}
		m.begin(slices.Repeat([]uint64{1}, len(m.logs)))
		t.Repeat(map[string]func(*rapid.T){
			"write": m.write, "write again": m.write, "merge": m.merge, "merge again": m.merge, "open": m.open, "step": m.step,
			"change the topology": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "whether") > 0 {
					return
				}
				m.stream.End()
				for _, w := range m.watchers {
					for w.reader != nil {
						m.together(t, w)
					}
				}
				m.begin(m.now(t))
			},
		})
		m.finish(t)
		m.check(t)
	})
}

// TestSameOrder has readers join at different times: what they see is the end of the same sequence.
func TestSameOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const cells = 3
		m := &model{logs: make([][]written, cells), writes: NewWrites(1000), clock: 10}
		limits := Limits{Entries: 1000, Bytes: func() int { return 1 << 20 }}
		m.stream, m.read = New(limits, []uint64{1, 1, 1}, at(m.tick()), make([]bool, cells)), []uint64{1, 1, 1}
		t.Repeat(map[string]func(*rapid.T){"write": m.write, "merge": m.merge, "open": m.open, "step": m.step})
		m.finish(t)
		for _, w := range m.watchers {
			want := slices.DeleteFunc(slices.Clone(m.order), func(c written) bool { return c.revision <= w.start[c.cell] })
			if !slices.EqualFunc(w.seen, want, func(a, b written) bool { return a.cell == b.cell && a.revision == b.revision }) {
				t.Fatalf("from %v: got %v, want %v", w.start, w.seen, want)
			}
		}
	})
}

// sequential is a stream with changes by one client that waits for each answer, in alternating cells.
func sequential(t *testing.T, n int, limits Limits) (*Stream, func(*Entry) (Interval, bool)) {
	t.Helper()
	writes := NewWrites(100)
	s := New(limits, []uint64{1, 1}, at(1), make([]bool, 2))
	for i := range n {
		begun := 10 * (i + 1)
		e := Entry{Cell: i % 2, Revision: uint64(10 + i), Received: at(begun + 12)} // after the next write has begun
		writes.done[change{cell: uint16(e.Cell), revision: e.Revision}] = Interval{at(begun), at(begun + 9)}
		s.Append(e)
	}
	return s, func(e *Entry) (Interval, bool) { return writes.Of(e, uint16(e.Cell)) }
}

var roomy = Limits{Entries: 100, Bytes: func() int { return 1 << 20 }}

// TestJoinAfter begins after each of the changes of one client.
func TestJoinAfter(t *testing.T) {
	s, known := sequential(t, 6, roomy)
	for i := range 6 {
		r, _, joined := s.JoinAfter(i%2, uint64(10+i), known)
		if !joined {
			t.Fatalf("cannot begin after change %d", i)
		}
		entries, _, err := r.Next(nil)
		if err != nil || len(entries) != 5-i || i < 5 && entries[0].Revision != uint64(11+i) {
			t.Errorf("after change %d: %v, %v", i, entries, err)
		}
	}
	if _, _, joined := s.JoinAfter(0, 11, known); joined {
		t.Error("began after a revision that the cell does not have")
	}
}

// TestJoinAfterUncertain does not begin after an object if what precedes its event may be a consequence of it.
func TestJoinAfterUncertain(t *testing.T) {
	s := New(roomy, []uint64{1, 1}, at(1), make([]bool, 2))
	s.Append(Entry{Cell: 1, Revision: 50, Received: at(30)}, Entry{Cell: 0, Revision: 20, Key: "a/b", Received: at(40)})
	object := Interval{at(10), at(20)}
	for name, test := range map[string]struct {
		other       *Interval
		object      *Interval
		joins, asks bool
	}{
		"the other one is a consequence":    {&Interval{at(21), at(29)}, &object, false, false},
		"both at once":                      {&Interval{at(9), at(11)}, &object, false, false},
		"nothing is known of the other one": {nil, &object, false, false},
		"nothing is known of the object":    {&Interval{at(5), at(9)}, nil, false, true},
		"the other one was before":          {&Interval{at(5), at(9)}, &object, true, false},
		"the object is later":               {nil, &Interval{at(31), at(39)}, true, false},
		"the object is as old as the start": {&Interval{at(0), at(1)}, &Interval{at(1), at(39)}, false, false},
	} {
		_, key, joins := s.JoinAfter(0, 20, func(e *Entry) (Interval, bool) {
			of := test.object
			if e.Cell == 1 {
				of = test.other
			}
			if of == nil {
				return Interval{}, false
			}
			return *of, true
		})
		if joins != test.joins || (key == "a/b") != test.asks {
			t.Errorf("%s: joins: %v, asks for %q", name, joins, key)
		}
	}
}

// TestJoinAfterContinued begins after a change that was under way when a stream ended which another one continues.
func TestJoinAfterContinued(t *testing.T) {
	earlier, known := sequential(t, 6, roomy)
	earlier.End()
	position := earlier.Position()
	if !slices.Equal(position, []uint64{14, 15}) {
		t.Errorf("the stream has ended at %v", position)
	}
	for name, test := range map[string]struct {
		earlier func(*Entry) (Interval, bool)
		joins   bool
	}{
		"what came before is known":       {known, true},
		"nothing is known of it":          {func(*Entry) (Interval, bool) { return Interval{}, false }, false},
		"the earlier stream is forgotten": {nil, false},
	} {
		s := New(roomy, position, at(75), make([]bool, 2))
		if test.earlier != nil {
			s.Precede(func(cell int, write Interval) bool { return earlier.Independent(cell, write, test.earlier) })
		}
		s.Append(Entry{Cell: 0, Revision: 16, Received: at(82)})
		_, _, joined := s.JoinAfter(0, 16, func(*Entry) (Interval, bool) { return Interval{at(70), at(79)}, true })
		if joined != test.joins {
			t.Errorf("%s: joined: %v", name, joined)
		}
	}
	r, _, joined := earlier.JoinAfter(0, 14, known)
	if !joined {
		t.Fatal("cannot begin after a change in the history of a stream that has ended")
	}
	if entries, _, err := r.Next(nil); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if _, _, err := r.Next(nil); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}

// TestHide leaves out events that are outdated for one reader only.
func TestHide(t *testing.T) {
	s := New(roomy, []uint64{5, 5}, at(0), make([]bool, 2))
	s.Append(Entry{Cell: 0, Revision: 10, Key: "n/a", UID: "old"}, Entry{Cell: 1, Revision: 11, Key: "n/a", UID: "new"}, Entry{Cell: 0, Revision: 12, Key: "n/a", UID: "old"})
	for _, hides := range []bool{true, false} {
		r, _ := s.JoinAt([]uint64{5, 20})
		if hides {
			r.Hide(func(e *Entry) bool { o := e.Object(); return o.Namespace == "n" && o.Name == "a" && o.UID == "old" })
		}
		want := 2
		if hides {
			want = 0
		}
		if entries, _, err := r.Next(nil); err != nil || len(entries) != want {
			t.Errorf("hides %v: %v, %v", hides, entries, err)
		}
		if position := r.Position(); !slices.Equal(position, []uint64{12, 20}) {
			t.Errorf("the position is %v", position)
		}
	}
}

// TestJoinAfterDropped does not begin after an object if what preceded it has been dropped too late.
func TestJoinAfterDropped(t *testing.T) {
	s, known := sequential(t, 6, Limits{Entries: 3, Bytes: func() int { return 1 << 20 }})
	for i, want := range []bool{false, false, false, false, true, true} { // the third one, dropped, was received after the fourth had begun
		if _, _, joined := s.JoinAfter(i%2, uint64(10+i), known); joined != want {
			t.Errorf("begins after change %d: %v", i, joined)
		}
	}
}

// TestBounds checks that a stream keeps no more than it may, and at least its last entry.
func TestBounds(t *testing.T) {
	s := New(Limits{Entries: 4, Bytes: func() int { return 10_000 }}, []uint64{1}, at(0), make([]bool, 1))
	for i := range 50 {
		s.Append(Entry{Revision: uint64(i + 2), Data: make([]byte, 100*(i%5))})
		if entries, _ := s.Size(); entries > 4 {
			t.Fatalf("%d entries", entries)
		}
	}
	s.Append(Entry{Revision: 100, Data: make([]byte, 8_000)})
	if _, bytes := s.Size(); bytes > 10_000 {
		t.Errorf("%d bytes", bytes)
	}
	s.Append(Entry{Revision: 101, Data: make([]byte, 1<<20)})
	if entries, _ := s.Size(); entries != 1 {
		t.Errorf("%d entries beside a large one", entries)
	}
	if _, joined := s.JoinAt([]uint64{99}); joined {
		t.Error("a watch joined that had to see a dropped entry")
	}
	if _, joined := s.JoinAt([]uint64{100}); !joined {
		t.Error("a watch that needs the last entry cannot join")
	}
}

// TestAbsent ignores the revisions of cells that are not read.
func TestAbsent(t *testing.T) {
	s := New(roomy, []uint64{5, 700}, at(0), []bool{false, true})
	r, joined := s.JoinAt([]uint64{5, 0})
	if !joined {
		t.Fatal("a cell that is not read keeps a watch from joining")
	}
	if position := r.Position(); !slices.Equal(position, []uint64{5, 700}) {
		t.Errorf("the position is %v", position)
	}
}

// TestWait wakes readers when there is something to read.
func TestWait(t *testing.T) {
	s := New(roomy, []uint64{1}, at(0), make([]bool, 1))
	r, _ := s.JoinAt([]uint64{1})
	_, wait, err := r.Next(nil)
	if wait == nil || err != nil {
		t.Fatalf("nothing to wait for: %v", err)
	}
	s.Append(Entry{Revision: 2})
	<-wait
	if entries, _, err := r.Next(nil); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	_, wait, _ = r.Next(nil)
	s.End()
	<-wait
	if _, _, err := r.Next(nil); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}

// TestWrites checks what is remembered of writes.
func TestWrites(t *testing.T) {
	log := NewWrites(2)
	first := log.Begin("a", at(10))
	first.Made(3, 100)
	interval, known := log.Of(&Entry{Revision: 100, Received: time.Now()}, 3)
	if !known || !interval.Begun.Equal(at(10)) {
		t.Errorf("%v, %v", interval, known)
	}
	again := log.Begin("a", time.Now())
	again.Made(3, 100) // it has changed nothing
	if unchanged, _ := log.Of(&Entry{Revision: 100, Received: time.Now()}, 3); unchanged != interval {
		t.Errorf("a write that changed nothing counts: %v", unchanged)
	}
	if _, known := log.Of(&Entry{Revision: 100, Received: at(9)}, 3); known {
		t.Error("an event counts that came before the write began")
	}
	if _, known := log.Of(&Entry{Revision: 100, Received: time.Now()}, 4); known {
		t.Error("the cells are confused")
	}
	log.Begin("b", at(20)).Deleted("uid")
	if _, known := log.Of(&Entry{Revision: 7, Deleted: "uid", Received: time.Now()}, 1); !known {
		t.Error("a deletion is forgotten")
	}
	log.Begin("c", at(30)).Made(3, 101)
	if _, known := log.Of(&Entry{Revision: 100, Received: time.Now()}, 3); known || len(log.done) != 2 {
		t.Errorf("%d writes are remembered, want 2", len(log.done))
	}
	ctx, cancel := context.WithCancel(t.Context())
	settled := make(chan struct{})
	go func() {
		log.Settle(ctx, "a")
		close(settled)
	}()
	first.End()
	first.End()
	select {
	case <-settled:
		t.Error("settled while a write is under way")
	default:
	}
	again.End()
	<-settled
	cancel()
	log.Settle(ctx, "b") // ends with the context
	var none *Write
	none.Made(1, 1)
	none.Deleted("x")
	none.End()
}
