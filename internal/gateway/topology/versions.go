package topology

import (
	"slices"

	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/slots"
)

// number numbers the cells. One that has left keeps the number that it had.
func (v *View) number(history []*View) {
	if v.Owners == nil {
		return
	}
	for _, earlier := range slices.Backward(history) {
		if earlier.Owners != nil && earlier.Epoch() < v.Epoch() {
			v.past = append(v.past, earlier.Owners)
		}
	}
	v.numbers = make([]uint16, v.Map.Cells())
	for i := range v.numbers {
		name := v.Name(slots.Index(i))
		v.numbers[i] = v.Owners.Number(name)
		for _, owners := range v.past {
			if v.numbers[i] == 0 {
				v.numbers[i] = owners.Number(name)
			}
		}
	}
	if v.Hub {
		v.numbers = append(v.numbers, slots.HubNumber)
	}
}

// Number returns the number of a cell, or that of the hub; 0 if it has none.
func (v *View) Number(cell slots.Index) uint16 {
	if int(cell) >= len(v.numbers) {
		return 0
	}
	return v.numbers[cell]
}

// Numbered returns the cell with a number, or the hub.
func (v *View) Numbered(number uint16) (slots.Index, bool) {
	if i := slices.Index(v.numbers, number); number != 0 && i >= 0 {
		return slots.Index(i), true
	}
	return slots.None, false
}

// Version returns the version of a revision of an object in a cell. It is false if the cell is not known to have owned the object's slot.
func (v *View) Version(cell slots.Index, slot slots.Slot, revision uint64) (position.Version, bool) {
	number := v.Number(cell)
	if number == 0 {
		return position.Version{}, false
	}
	since := v.Owners.Since(slot, number)
	for _, owners := range v.past {
		if since == 0 {
			since = owners.Since(slot, number)
		}
	}
	return position.Version{Change: since, Cell: number, Revision: revision}, since != 0
}

// Unowned returns the version of a revision of an object that any cell may hold, or the hub.
func (v *View) Unowned(cell slots.Index, revision uint64) position.Version {
	return position.Version{Change: 1, Cell: v.Number(cell), Revision: revision}
}

// Joined returns a position from before a version was written, if its cell has joined in an epoch that is remembered: when the epoch began,
// the other cells were read before this one, and this one was below the version. Cells that joined with it begin where they joined.
func (t *Tracker) Joined(v position.Version) (position.Position, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, view := range slices.Backward(t.history) {
		cell, found := view.Numbered(v.Cell)
		if found && cell == view.HubIndex() {
			return position.Position{}, false // it has never joined
		}
		if begin := view.from[view.Name(cell)]; !found || begin == 0 || begin >= v.Revision {
			continue
		}
		at := view.begin()
		at.Versions[cell] = v.Revision
		return at, !slices.ContainsFunc(view.Cells(), func(i slots.Index) bool { return at.Versions[i] == 0 })
	}
	return position.Position{}, false
}

// begin returns the position of all cells when the epoch began, with 0 for those that were not read.
func (v *View) begin() position.Position {
	at := position.Position{Epoch: v.Epoch(), Versions: make([]uint64, v.Map.Cells())}
	for i := range at.Versions {
		name := v.Name(slots.Index(i))
		at.Versions[i] = max(v.from[name], v.before[name], v.left[name])
	}
	return at
}
