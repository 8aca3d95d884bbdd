package watchmerge

import (
	"testing"

	"github.com/cellplane/cellplane/internal/splice"
)

// leaving is a Moves.Side for moves from cell 0 to cell 1.
func leaving(i int, _ *splice.Object) Side {
	if i == 0 {
		return Leaves
	}
	return Arrives
}

// TestLeftCellIsReadToItsEnd: a watch that has not seen all events of a cell that has left reads them, and no more.
func TestLeftCellIsReadToItsEnd(t *testing.T) {
	s := newScript(t, Options{Cells: 2, Start: []uint64{10, 10}, Left: map[int]uint64{0: 15}, Moves: hook{leaving, annotated}})
	expect(t, s.offer(1, event(t, change(30, "n/a", object{content: 2, after: "0:14"}))), "")
	expect(t, s.offer(0, event(t, change(12, "n/a", object{content: 1}))), "MODIFIED n/a 1@[12 10]")
	expect(t, s.offer(0, event(t, change(14, "n/a", object{content: 1, status: Migrated}))), "MODIFIED n/a 2@[14 30]")
	if !s.m.Wants(0) {
		t.Error("a cell is not read to its end")
	}
	expect(t, s.offer(0, bookmark(t, 20, false)), "")
	if s.m.Wants(0) || s.m.MayOpen(0) {
		t.Error("a cell is read beyond its end")
	}
	expect(t, s.offer(1, event(t, change(31, "n/b", object{after: "0:99"}))), "MODIFIED n/b 0@[20 31]")
}

func TestLeftCellIsNotReopened(t *testing.T) {
	s := newScript(t, Options{Cells: 2, Start: []uint64{15, 10}, Left: map[int]uint64{0: 15}})
	if s.m.Wants(0) || s.m.MayOpen(0) || !s.m.Wants(1) {
		t.Error("a cell without unseen events is read")
	}
	s = newScript(t, Options{Cells: 2, Left: map[int]uint64{0: 15}, InitialEventsEnd: true})
	if s.m.MayOpen(0) {
		t.Error("a new watch begins in a cell that has left")
	}
	expect(t, s.offer(1, bookmark(t, 20, true)), "BOOKMARK end@[15 20]")
	if _, err := New(Options{Cells: 1, Left: map[int]uint64{3: 1}}, noon); err == nil {
		t.Error("an unknown cell was accepted")
	}
}

// TestLabelledObjectsAreNotShown: the mover's changes to labelled objects are not shown.
func TestLabelledObjectsAreNotShown(t *testing.T) {
	s := newScript(t, Options{Cells: 2, Start: []uint64{10, 10}, Moves: hook{leaving, annotated}})
	expect(t, s.offer(0, event(t, change(12, "n/a", object{status: Migrating}))), "")
	expect(t, s.offer(1, event(t, entry{rv: 12, kind: splice.Deleted, object: object{key: "n/a", status: Migrating}})), "")
	expect(t, s.offer(0, event(t, entry{rv: 13, kind: splice.Deleted, object: object{key: "n/a", status: Migrated}})), "")
	expect(t, s.offer(0, event(t, change(14, "n/b", object{content: 1}))), "MODIFIED n/b 1@[14 12]")
}

// TestCopiesWithoutAnOriginalAreShown: a new watch shows a copy that is not active yet if the old cell does not have the object: it has
// released it, or never had it, because the copy was promoted from a backup.
func TestCopiesWithoutAnOriginalAreShown(t *testing.T) {
	s := newScript(t, Options{Cells: 2, InitialEventsEnd: true, Moves: hook{leaving, annotated}})
	added := func(rv uint64, o object) *splice.Event { return event(t, entry{rv: rv, kind: splice.Added, object: o}) }
	expect(t, s.offer(0, added(5, object{key: "n/frozen", status: Migrating})), "ADDED n/frozen 0@5")
	expect(t, s.offer(0, added(6, object{key: "n/left", status: Migrated})), "")
	expect(t, s.offer(1, added(5, object{key: "n/frozen", status: Migrating})), "")
	expect(t, s.offer(1, added(6, object{key: "n/left", status: Migrating})), "")
	expect(t, s.offer(1, added(7, object{key: "n/promoted", status: Migrating})), "")
	expect(t, s.offer(0, bookmark(t, 20, true)), "")
	expect(t, s.offer(1, bookmark(t, 20, true)), "ADDED n/left 0@6, ADDED n/promoted 0@7, BOOKMARK end@[20 20]")
}

// TestObjectCreatedInTheNewCell: such an object hides later events of the old cell about its predecessor, but not about itself.
func TestObjectCreatedInTheNewCell(t *testing.T) {
	s := newScript(t, Options{Cells: 2, Start: []uint64{10, 10}, Moves: hook{leaving, annotated}})
	expect(t, s.offer(1, event(t, entry{rv: 12, kind: splice.Added, object: object{key: "n/a", incarnation: 2}})), "ADDED n/a 0@[10 12]")
	expect(t, s.offer(0, event(t, entry{rv: 12, kind: splice.Modified, object: object{key: "n/a", incarnation: 1}})), "")
	expect(t, s.offer(0, event(t, entry{rv: 13, kind: splice.Deleted, object: object{key: "n/a", incarnation: 1}})), "")
	expect(t, s.offer(0, event(t, entry{rv: 14, kind: splice.Modified, object: object{key: "n/a", incarnation: 2, content: 1}})), "MODIFIED n/a 1@[14 12]")
}

func TestDriverEnd(t *testing.T) {
	h := newHarness(t, Options{Start: []uint64{10}, Bookmarks: true}, fakeCell{[]fakeStream{{events: []*splice.Event{added(t, 15, "n/a")}}}})
	end := make(chan struct{})
	h.driver.End = end
	send := h.driver.Send
	h.driver.Send = func(outputs []Output) error {
		close(end)
		return send(outputs)
	}
	h.idle = make(chan struct{})
	if err := h.run(t, 10); err != nil {
		t.Fatal(err)
	}
	h.expect(t, "BEGIN", "ADDED n/a 0@[15]")
}
