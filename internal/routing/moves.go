package routing

import (
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/slots"
)

// Moves says how objects move between cells, for a watch. Views are the topologies since the watch's position was issued, the one in
// force first: the watch may not have reached the events of an earlier one yet. For the same reason a slot whose objects have all moved
// still counts as moving. Cells are indexes of the first view.
type Moves []*View

// Move is a move from one cell to another.
type Move struct {
	From, To string
}

// Any reports whether anything can be moving.
func (m Moves) Any() bool {
	for _, view := range m {
		if view.Moving() {
			return true
		}
	}
	return false
}

// Of returns the move of a slot's objects that a cell takes part in.
func (m Moves) Of(cell slots.Index, slot slots.Slot) (Move, bool) {
	name := m[0].Name(cell)
	for _, view := range m {
		route := view.Route(slot)
		if move := (Move{view.Name(route.Old), view.Name(route.New)}); route.Moving() && (move.From == name || move.To == name) {
			return move, true
		}
	}
	return Move{}, false
}

// Owns reports whether a slot's objects are, or have been, in a cell.
func (m Moves) Owns(cell slots.Index, slot slots.Slot) bool {
	name := m[0].Name(cell)
	for _, view := range m {
		if route := view.Route(slot); name == view.Name(route.New) || name == view.Name(route.Old) {
			return true
		}
	}
	return false
}

// Annotated is what the mover has written on an object.
type Annotated struct {
	// Label is the value of the rebalance label.
	Label string
	// MovedFrom and CopiedAt are the annotations with a cell and a resourceVersion: where the original was committed, and where the copy
	// was made.
	MovedFrom, CopiedAt string
}

// After returns the cell and the resourceVersion there that a watch must have reached before it shows an event of an object: for a moved
// object the copy in the new cell, for others the commit in the old cell. ok is false if the event depends on nothing. Objects keep the
// annotations of their last move; only those of the present move count.
func (m Moves) After(cell slots.Index, slot slots.Slot, object Annotated) (other slots.Index, version uint64, ok bool) {
	move, moving := m.Of(cell, slot)
	if !moving {
		return slots.None, 0, false
	}
	want, annotation := move.From, object.MovedFrom
	if object.Label == names.RebalanceMigrated {
		want, annotation = move.To, object.CopiedAt
	}
	name, version, ok := ParsePlace(annotation)
	other, found := m[0].Index(name)
	if !ok || !found || name != want {
		return slots.None, 0, false
	}
	return other, version, true
}
