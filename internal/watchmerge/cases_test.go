package watchmerge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/splice"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// hook implements Moves with functions.
type hook struct {
	side  func(int, *splice.Object) Side
	after func(int, *splice.Event) Dependency
}

func (h hook) Side(i int, o *splice.Object) Side       { return h.side(i, o) }
func (h hook) After(i int, e *splice.Event) Dependency { return h.after(i, e) }
func stays(int, *splice.Object) Side                   { return Stays }
func annotated(i int, e *splice.Event) Dependency      { return (&world{}).After(i, e) }
func change(rv uint64, key string, o object) entry {
	o.key = key
	return entry{rv: rv, kind: splice.Modified, object: o}
}
func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// script runs events through a merger and returns its output.
type script struct {
	t *testing.T
	m *Merger
}

func newScript(t *testing.T, options Options) *script {
	t.Helper()
	options.Epoch = epoch
	return &script{t, must[*Merger](t)(New(options, noon))}
}

func (s *script) offer(i int, e *splice.Event) string {
	s.t.Helper()
	return format(must[[]Output](s.t)(s.m.Offer(i, e, noon)))
}

// format writes outputs as `TYPE key content@position`.
func format(outputs []Output) string {
	var lines []string
	for _, o := range outputs {
		at := o.Version
		if p, err := position.Parse(o.Version); err == nil {
			at = fmt.Sprint(p.Versions)
		}
		what := string(o.Event.Type)
		if o.Event.Object.Name != "" {
			what += " " + o.Event.Object.Key() + " " + o.Event.Object.Annotation("content")
		}
		if o.Event.InitialEventsEnd {
			what += " end"
		}
		lines = append(lines, what+"@"+at)
	}
	return strings.Join(lines, ", ")
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestHeldEventsDoNotWaitForEachOther checks that a held event implies that its cell has no event before it, even if a selector hides some.
func TestHeldEventsDoNotWaitForEachOther(t *testing.T) {
	s := newScript(t, Options{Cells: 2, Start: []uint64{10, 10}, Moves: hook{stays, annotated}})
	expect(t, s.offer(0, event(t, change(20, "n/a", object{after: "1:15"}))), "")
	if s.m.Wants(0) {
		t.Error("a cell with a held event is read further")
	}
	if version, resumable := s.m.Reopen(0); version != 20 || !resumable {
		t.Errorf("a cell with a held event is reopened at %d (%v)", version, resumable)
	}
	expect(t, s.offer(1, event(t, change(30, "n/b", object{after: "0:12"}))), "MODIFIED n/a 0@[20 10], MODIFIED n/b 0@[20 30]")
}

func TestDependenciesOnAbsentCellsAreMet(t *testing.T) {
	s := newScript(t, Options{Cells: 2, Start: []uint64{10, 0}, Absent: []int{1}, Moves: hook{stays, annotated}})
	expect(t, s.offer(0, event(t, change(20, "n/a", object{after: "1:15"}))), "MODIFIED n/a 0@[20 0]")
	expect(t, s.offer(0, event(t, change(21, "n/a", object{after: "7:15"}))), "MODIFIED n/a 0@[21 0]")
}

// TestCatchingUpCascades: while one cell catches up for one object, it shows another whose old cell is behind in turn.
func TestCatchingUpCascades(t *testing.T) {
	from := map[string]int{"n/a": 1, "n/b": 0}
	side := func(i int, o *splice.Object) Side {
		switch i {
		case from[o.Key()]:
			return Leaves
		case 2:
			return Arrives
		}
		return Stays
	}
	s := newScript(t, Options{Cells: 3, Stages: []int{2, 1, 0}, InitialEventsEnd: true, Moves: hook{side, annotated}})
	if s.m.MayOpen(0) || s.m.MayOpen(1) || !s.m.MayOpen(2) {
		t.Error("the cells are not opened in the order of their stages")
	}
	expect(t, s.offer(2, bookmark(t, 10, true)), "")
	expect(t, s.offer(1, event(t, entry{rv: 11, kind: splice.Added, object: object{key: "n/a", content: 1}})), "ADDED n/a 1@11")
	expect(t, s.offer(1, bookmark(t, 11, true)), "")
	expect(t, s.offer(0, event(t, entry{rv: 15, kind: splice.Added, object: object{key: "n/b", status: Migrated, after: "2:17"}})), "")
	expect(t, s.offer(0, bookmark(t, 15, true)), "")
	if s.m.Wants(0) || s.m.Wants(1) || !s.m.Wants(2) {
		t.Fatal("want the third cell to catch up")
	}
	expect(t, s.offer(2, event(t, change(12, "n/a", object{content: 2, status: Migrating}))), "")
	expect(t, s.offer(2, event(t, change(16, "n/a", object{content: 2, after: "1:14"}))), "MODIFIED n/a 2@16")
	expect(t, s.offer(2, event(t, change(17, "n/b", object{status: Migrating}))), "")
	if s.m.Wants(0) || !s.m.Wants(1) || s.m.Wants(2) {
		t.Fatal("want the second cell to catch up")
	}
	expect(t, s.offer(1, event(t, change(12, "n/a", object{content: 2}))), "")
	expect(t, s.offer(1, bookmark(t, 13, false)), "")
	expect(t, s.offer(1, event(t, change(14, "n/a", object{content: 2, status: Migrated}))), "MODIFIED n/b 0@17, BOOKMARK end@[15 14 17]")
}

func TestInitialEventsWithoutAnEnd(t *testing.T) {
	s := newScript(t, Options{Cells: 2, Bookmarks: true})
	expect(t, s.offer(0, event(t, entry{rv: 5, kind: splice.Added, object: object{key: "n/a"}})), "ADDED n/a 0@5")
	expect(t, s.offer(0, bookmark(t, 8, false)), "")
	expect(t, s.offer(0, bookmark(t, 9, true)), "")
	if s.m.Wants(0) {
		t.Error("a cell that has sent its initial events is not waited for")
	}
	if _, resumable := s.m.Reopen(1); resumable {
		t.Error("incomplete initial events can be resumed")
	}
	if version, resumable := s.m.Reopen(0); version != 9 || !resumable {
		t.Errorf("a complete cell is reopened at %d (%v)", version, resumable)
	}
	expect(t, s.offer(1, bookmark(t, 7, true)), "")
	expect(t, s.offer(0, event(t, change(12, "n/a", object{content: 1}))), "MODIFIED n/a 1@[12 7]")
}

func TestBookmarks(t *testing.T) {
	s := newScript(t, Options{Cells: 2, Start: []uint64{10, 10}, Bookmarks: true})
	at := func(d time.Duration) string { return format(must[[]Output](t)(s.m.Tick(noon.Add(d)))) }
	expect(t, at(2*time.Minute), "") // nothing new
	expect(t, s.offer(0, bookmark(t, 11, false)), "")
	expect(t, at(59*time.Second), "")
	expect(t, at(time.Minute), "BOOKMARK@[11 10]")
	expect(t, at(3*time.Minute), "") // nothing new
	expect(t, s.offer(1, bookmark(t, 12, false)), "")
	expect(t, format(must[[]Output](t)(s.m.Last(noon))), "BOOKMARK@[11 12]")
	expect(t, format(must[[]Output](t)(s.m.Last(noon))), "")

	quiet := newScript(t, Options{Cells: 1, Start: []uint64{10}})
	expect(t, quiet.offer(0, bookmark(t, 11, false)), "")
	expect(t, format(must[[]Output](t)(quiet.m.Last(noon))), "")
	if got := quiet.m.Position().Versions; !slices.Equal(got, []uint64{11}) {
		t.Errorf("a bookmark that the client does not want does not advance the position: %v", got)
	}
}

// TestVersions checks that events carry the versions of their objects, and that a bookmark with the position follows them.
func TestVersions(t *testing.T) {
	version := func(cell int, o *splice.Object) (string, bool) {
		return fmt.Sprintf("%d-%s", cell, o.ResourceVersion), o.Name != "unknown"
	}
	s := newScript(t, Options{Cells: 2, Start: []uint64{10, 10}, Bookmarks: true, Version: version, Moves: hook{stays, annotated}})
	expect(t, s.offer(0, event(t, change(20, "n/a", object{after: "1:15"}))), "")
	expect(t, s.offer(1, event(t, change(30, "n/b", object{after: "0:12"}))), "MODIFIED n/a 0@0-20, MODIFIED n/b 0@1-30, BOOKMARK@[20 30]")
	expect(t, s.offer(0, event(t, change(21, "n/a", object{status: Migrated}))), "") // not shown: the next bookmark is early enough
	expect(t, s.offer(0, bookmark(t, 22, false)), "")
	expect(t, format(must[[]Output](t)(s.m.Last(noon))), "BOOKMARK@[22 30]")
	expect(t, s.offer(1, event(t, change(31, "n/unknown", object{}))), "ERROR@")
	if !s.m.Ended() {
		t.Error("the watch continues after an object without a version")
	}

	quiet := newScript(t, Options{Cells: 1, Start: []uint64{10}, Version: version})
	expect(t, quiet.offer(0, event(t, change(11, "n/a", object{}))), "MODIFIED n/a 0@0-11")

	initial := newScript(t, Options{Cells: 2, Bookmarks: true, Version: version})
	expect(t, initial.offer(0, event(t, entry{rv: 5, kind: splice.Added, object: object{key: "n/a"}})), "ADDED n/a 0@0-5")
	expect(t, initial.offer(0, bookmark(t, 9, true)), "")
	expect(t, initial.offer(1, bookmark(t, 7, true)), "BOOKMARK@[9 7]") // the client can resume from here
	initial = newScript(t, Options{Cells: 1, Bookmarks: true, InitialEventsEnd: true, Version: version})
	expect(t, initial.offer(0, event(t, entry{rv: 5, kind: splice.Added, object: object{key: "n/a"}})), "ADDED n/a 0@0-5")
	expect(t, initial.offer(0, bookmark(t, 9, true)), "BOOKMARK end@[9]")
}

func TestErrorsEndTheWatch(t *testing.T) {
	s := newScript(t, Options{Cells: 2, Start: []uint64{10, 10}})
	gone, err := splice.ParseEvent([]byte(`{"type":"ERROR","object":{"kind":"Status","code":410}}`), splice.JSON)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, s.offer(1, gone), "ERROR@")
	if !s.m.Ended() || s.m.Wants(0) || s.m.Wants(1) {
		t.Error("the watch continues after an error")
	}
	if _, err := s.m.Expire(); err == nil {
		t.Error("the watch ends twice")
	}
	for _, encoding := range []splice.Encoding{splice.JSON, splice.Protobuf} {
		s := newScript(t, Options{Cells: 1, Start: []uint64{10}, Encoding: encoding})
		outputs := must[[]Output](t)(s.m.Expire())
		if len(outputs) != 1 || outputs[0].Event.Code != 410 || outputs[0].Event.Reason != "Expired" || !s.m.Ended() {
			t.Errorf("an expired watch ends with %v", format(outputs))
		}
	}
}

func TestProtocolViolations(t *testing.T) {
	s := newScript(t, Options{Cells: 2, Start: []uint64{10, 10}, Moves: hook{stays, annotated}})
	if _, err := s.m.Offer(0, event(t, change(9, "n/a", object{})), noon); err == nil {
		t.Error("a cell went back and was accepted")
	}
	if _, err := s.m.Offer(0, event(t, change(1<<63, "n/a", object{})), noon); err == nil {
		t.Error("a resourceVersion above the maximum was accepted")
	}
	invalid, err := splice.ParseEvent([]byte(`{"type":"ADDED","object":{"metadata":{"resourceVersion":"x"}}}`), splice.JSON)
	if err != nil {
		t.Fatal(err)
	}
	s = newScript(t, Options{Cells: 2, Start: []uint64{10, 10}, Moves: hook{stays, annotated}})
	if _, err := s.m.Offer(0, invalid, noon); err == nil {
		t.Error("an invalid resourceVersion was accepted")
	}
	expect(t, s.offer(0, event(t, change(20, "n/a", object{after: "1:15"}))), "")
	if _, err := s.m.Offer(0, event(t, change(21, "n/a", object{})), noon); err == nil {
		t.Error("an unexpected event was accepted")
	}
}

func TestNewRefuses(t *testing.T) {
	for name, options := range map[string]Options{
		"no cells":              {},
		"too short a position":  {Cells: 2, Start: []uint64{1}},
		"an unknown absent one": {Cells: 1, Absent: []int{1}},
		"nowhere to resume":     {Cells: 1, Start: []uint64{0}},
		"too few stages":        {Cells: 2, Stages: []int{1}},
		"an impossible epoch":   {Cells: 1, Epoch: position.MaxEpoch + 1},
	} {
		if _, err := New(options, noon); err == nil {
			t.Errorf("%s: New succeeded", name)
		}
	}
}
