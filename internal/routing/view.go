package routing

import (
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
)

// View is a topology as requests are routed by it. It never changes.
type View struct {
	*slots.Map
	// Hub says that the hub counts as one more cell, for kinds of which it holds objects too. It owns no slot, and nothing moves to or from it.
	Hub bool
	// Ready says that the epoch is in force: cells refuse creations that carry an earlier one.
	Ready bool
	// MovedSlots is the bitmap of slots whose objects have all moved, lowest bit first.
	MovedSlots []byte
	// Next is a later topology that is not ready yet; nil if there is none.
	Next *slots.Map
}

// Moving reports whether any slot changes its owner.
func (v *View) Moving() bool {
	for i := range v.Map.Cells() {
		cell := v.Cell(slots.Index(i))
		if cell.State == slots.In || cell.State == slots.Out || cell.TargetWeight != 0 {
			return true
		}
	}
	return false
}

// Latest returns the highest known epoch, which may not be ready. A request that is valid in all epochs carries it.
func (v *View) Latest() int64 {
	if v.Next != nil {
		return v.Next.Epoch()
	}
	return v.Epoch()
}

// Stable reports whether the objects of a slot are created in the same cell in the latest epoch too.
func (v *View) Stable(slot slots.Slot) bool {
	if v.Next == nil {
		return true
	}
	next := v.Next.Route(slot)
	return !next.Moving() && v.Next.Name(next.New) == v.Name(v.Locate(slot).New)
}

// Cells returns the indexes of the cells that hold objects.
func (v *View) Cells() []slots.Index {
	holding := make([]slots.Index, 0, v.Map.Cells())
	for i := range v.Map.Cells() {
		if v.Cell(slots.Index(i)).State != slots.Failed {
			holding = append(holding, slots.Index(i))
		}
	}
	return holding
}

// Locate returns where the objects of a slot are. A slot whose objects have all moved has one owner, the new one.
func (v *View) Locate(slot slots.Slot) slots.Route {
	route := v.Route(slot)
	if route.Moving() && int(slot/8) < len(v.MovedSlots) && v.MovedSlots[slot/8]&(1<<(slot%8)) != 0 {
		route.Old = route.New
	}
	return route
}

// MayMove reports whether objects of a slot are moving, or about to.
func (v *View) MayMove(slot slots.Slot) bool { return v.Locate(slot).Moving() || !v.Stable(slot) }

// Replaces reports whether a request that could not be answered with an earlier view should be routed again with this one.
func (v *View) Replaces(earlier *View) bool {
	return v.Epoch() > earlier.Epoch() || v.Ready && !earlier.Ready
}

// stages groups cells by the order in which they are read, so that the new owner of every slot comes before the old one.
func (v *View) stages(cells []slots.Index) [][]slots.Index {
	if !v.Moving() {
		return [][]slots.Index{cells}
	}
	of := v.Stages(placement.Anywhere)
	var stages [][]slots.Index
	for _, cell := range cells {
		for len(stages) <= of[cell] {
			stages = append(stages, nil)
		}
		stages[of[cell]] = append(stages[of[cell]], cell)
	}
	return stages
}
