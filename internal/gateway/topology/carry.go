package topology

import (
	"fmt"
	"slices"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/short"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/slots"
)

// Carried is a position that has been carried forward to a later epoch.
type Carried struct {
	position.Position
	// Passed are the topologies before that epoch, oldest first. The position may be before events of their time.
	Passed []*View
}

// Carry carries a position forward to the epoch of view. It returns ErrForeign if a client could miss events there: the epoch is not
// remembered, objects have moved in a change that is not remembered, or a cell has failed. If the view includes the hub, so does the
// result; its version there is 0 if the position has none.
func (t *Tracker) Carry(p position.Position, view *View) (Carried, error) {
	p, hub := t.withoutHub(p, view)
	carried, err := t.carry(p, view)
	if err == nil && view.Hub {
		carried.Versions = append(slices.Clip(carried.Versions), hub)
	}
	return carried, err
}

// withoutHub separates the version of the hub from those of the cells. The hub stays the same in all epochs.
func (t *Tracker) withoutHub(p position.Position, view *View) (position.Position, uint64) {
	if p.Epoch != view.Epoch() {
		view = t.At(p.Epoch)
	}
	if view == nil || !view.Hub || len(p.Versions) != view.Map.Cells()+1 {
		return p, 0
	}
	cells := view.Map.Cells()
	return position.Position{Epoch: p.Epoch, Versions: p.Versions[:cells]}, p.Versions[cells]
}

// carry carries the versions of the cells.
func (t *Tracker) carry(p position.Position, view *View) (Carried, error) {
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
	return fmt.Errorf("position of epoch %d: %w", epoch, position.ErrForeign)
}

// since returns the views from an epoch to a later one; none if the epoch is not remembered.
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

// step carries a position from one topology to the next.
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

// enter sets the version of a cell that is new in the next topology.
func enter(carried *position.Position, from, to *View, i slots.Index) error {
	name := to.Name(i)
	before, found := from.Index(name)
	wasHolding := found && from.Cell(before).State != slots.Failed
	if _, left := to.left[name]; to.Cell(i).State == slots.Failed {
		if wasHolding && !left { // events that no client has seen may be lost
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

// leave refuses a position that has not seen all events of a cell that is no longer read.
func leave(p position.Position, from, to *View, i slots.Index) error {
	name := from.Name(i)
	now, found := to.Index(name)
	_, left := to.left[name]
	if found && (left || to.Cell(now).State != slots.Failed) && from.Cell(i).State != slots.Failed {
		return nil // still read
	}
	if least, had := from.left[name]; had && p.Versions[i] < least {
		return foreign(p.Epoch)
	}
	if from.Cell(i).State != slots.Failed && !found {
		return foreign(p.Epoch)
	}
	return nil
}

// follows reports whether every slot of a topology starts where the topology before it ends: its new owner then is the old or the new
// owner now.
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

// Past returns the View of an epoch, this one or an earlier one, with the connections of now, to read what the cells had at some time of it. It
// does not know which slots had moved by then: objects tell by their labels. It is nil if the epoch is not remembered, or a cell of that time
// has gone or has another store.
func (t *Tracker) Past(epoch int64, now *View) *View {
	at := now
	if epoch != now.Epoch() {
		at = t.At(epoch)
	}
	if at == nil || at != now && at.Owners == nil || epoch > now.Epoch() {
		return nil
	}
	past := *at
	past.MovedSlots = nil
	if at == now {
		return &past
	}
	past.Upstreams, past.Short = make([]*fleet.Upstream, past.Map.Cells()), make([]*short.Connections, past.Map.Cells())
	for _, cell := range past.Cells() {
		i, found := now.Numbered(past.Number(cell))
		if !found || now.Upstreams[i] == nil {
			return nil
		}
		past.Upstreams[cell] = now.Upstreams[i]
		if int(i) < len(now.Short) {
			past.Short[cell] = now.Short[i]
		}
	}
	return &past
}

// SameOwners reports whether all slots have the same owner at any time of both views, cells have the same indexes, and nothing moves.
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
		before, after := a.Route(slot), b.Route(slot)
		if before.Moving() || after.Moving() || before.New != after.New {
			return false
		}
	}
	return true
}
