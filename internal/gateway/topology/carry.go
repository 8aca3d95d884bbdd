package topology

import (
	"fmt"

	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/slots"
)

// Carried is a position that has been brought to another epoch.
type Carried struct {
	position.Position
	// Passed are the topologies that it has come through, oldest first. What happened in the cells while they were in force may still
	// be ahead of the position.
	Passed []*View
}

// Carry brings a position of an earlier epoch to that of view. It is ErrForeign if that cannot be done so that a client who goes on
// there misses nothing: the epoch is not remembered, objects have come into other cells in ways nobody remembers, or a cell has failed.
func (t *Tracker) Carry(p position.Position, view *View) (Carried, error) {
	if p.Epoch == view.Epoch() && len(p.Versions) == view.Map.Cells() {
		return Carried{Position: p}, nil
	}
	carried := Carried{Position: p}
	for _, next := range t.since(p.Epoch, view) {
		if carried.Passed == nil {
			carried.Passed = []*View{next}
			continue
		}
		last := carried.Passed[len(carried.Passed)-1]
		var err error
		if carried.Position, err = step(carried.Position, last, next); err != nil {
			return Carried{}, err
		}
		if next.Epoch() == view.Epoch() {
			return carried, nil
		}
		carried.Passed = append(carried.Passed, next)
	}
	return Carried{}, foreign(p.Epoch)
}

func foreign(epoch int64) error {
	return fmt.Errorf("a position of epoch %d: %w", epoch, position.ErrForeign)
}

// since returns the views from that of an epoch to another; none if the epoch is not remembered.
func (t *Tracker) since(epoch int64, to *View) []*View {
	t.mu.Lock()
	defer t.mu.Unlock()
	var views []*View
	for _, view := range t.history {
		if view.Epoch() == epoch || (len(views) > 0 && view.Epoch() < to.Epoch()) {
			views = append(views, view)
		}
	}
	if len(views) == 0 || epoch >= to.Epoch() {
		return nil
	}
	return append(views, to)
}

// step brings a position from one topology to the next that was in force.
func step(p position.Position, from, to *View) (position.Position, error) {
	carried, err := p.Carry(to.Epoch(), from.Names(), to.Names())
	if err != nil {
		return position.Position{}, err
	}
	for i := range to.Map.Cells() {
		if err := enter(&carried, from, to, slots.Index(i)); err != nil {
			return position.Position{}, err
		}
	}
	for i := range from.Map.Cells() {
		if err := leave(p, from, to, slots.Index(i)); err != nil {
			return position.Position{}, err
		}
	}
	if !follows(from, to) {
		return position.Position{}, foreign(p.Epoch)
	}
	return carried, nil
}

// enter fills in a cell of the next topology that was not one of the last.
func enter(carried *position.Position, from, to *View, i slots.Index) error {
	name := to.Name(i)
	before, found := from.Index(name)
	wasHolding := found && from.Cell(before).State != slots.Failed
	if _, left := to.left[name]; to.Cell(i).State == slots.Failed {
		if wasHolding && !left { // what it had and nobody had seen may be lost
			return foreign(carried.Epoch)
		}
		return nil
	}
	if wasHolding {
		return nil
	}
	begin, known := to.from[name]
	if !known || begin == 0 {
		return foreign(carried.Epoch)
	}
	carried.Versions[i] = begin
	return nil
}

// leave makes sure that nothing is lost with a cell that is no longer read.
func leave(p position.Position, from, to *View, i slots.Index) error {
	name := from.Name(i)
	now, found := to.Index(name)
	_, left := to.left[name]
	if found && (left || to.Cell(now).State != slots.Failed) && from.Cell(i).State != slots.Failed {
		return nil // it is read on
	}
	if least, had := from.left[name]; had && p.Versions[i] < least {
		return foreign(p.Epoch)
	}
	if from.Cell(i).State != slots.Failed && !found {
		return foreign(p.Epoch)
	}
	return nil
}

// follows reports whether a topology lets objects be only where the one before it put them: where they were going is where they are, or
// where they come from.
func follows(from, to *View) bool {
	for slot := range slots.Slot(slots.Count) {
		before, after := from.Route(slot), to.Route(slot)
		owner := from.Name(before.New)
		if owner != to.Name(after.Old) && owner != to.Name(after.New) {
			return false
		}
	}
	return true
}

// SameOwners reports whether every slot's objects are where they were, in cells that have the same places in positions.
func SameOwners(a, b *View) bool {
	if a.Map.Cells() != b.Map.Cells() {
		return false
	}
	for i := range a.Map.Cells() {
		if a.Name(slots.Index(i)) != b.Name(slots.Index(i)) {
			return false
		}
	}
	for slot := range slots.Slot(slots.Count) {
		before, after := a.Locate(slot), b.Locate(slot)
		if before.Moving() || after.Moving() || before.New != after.New {
			return false
		}
	}
	return true
}
