package slots

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// State is the state of a cell in a topology.
type State uint8

// The states of a cell.
const (
	// Normal cells own slots before and after a change.
	Normal State = iota
	// In cells are joining: they own slots only after the change.
	In
	// Out cells are leaving: they own slots only before the change.
	Out
	// Failed cells own nothing.
	Failed
)

// String returns the state as the topology spells it.
func (s State) String() string {
	switch s {
	case Normal:
		return "Normal"
	case In:
		return "In"
	case Out:
		return "Out"
	case Failed:
		return "Failed"
	default:
		return fmt.Sprintf("State(%d)", uint8(s))
	}
}

// Cell is one cell of a topology.
type Cell struct {
	// Name identifies the cell. Its draws depend on it.
	Name string
	// Seed is chosen by the function Seed when the cell joins, and does not change. The draws depend on it too.
	Seed uint32
	// Weight is the cell's share of the slots relative to other cells, at least 1.
	Weight int32
	// TargetWeight is the weight after the change under way; 0 means that it does not change.
	TargetWeight int32
	// State determines whether the cell owns slots before and after the change.
	State State
}

// Index is a cell's place in the topology's name order.
type Index uint8

// None is the index of no cell: the backup of a slot that only one cell can own.
const None Index = 255

// MaxCells is the largest number of cells of a topology. One more index is left for the hub, which gateways count as a cell for some kinds.
const MaxCells = 254

// Route holds the owners of a slot. Unless a change moves the slot, Old and New are the same.
type Route struct {
	// Old owns the slot's objects until they have been moved.
	Old Index
	// New owns them afterwards; new objects are created there.
	New Index
	// OldBackup owns the slot if Old fails, and holds the backup of objects that have not moved; it may be None.
	OldBackup Index
	// Backup owns the slot if New fails, and holds the backup of all other objects; it may be None.
	Backup Index
}

// Moving reports whether the slot changes its owner.
func (r Route) Moving() bool { return r.Old != r.New }

// BackupOf returns the cell that backs up the slot's objects in a cell; None if there is none.
func (r Route) BackupOf(cell Index) Index {
	switch cell {
	case r.New:
		return r.Backup
	case r.Old:
		return r.OldBackup
	default:
		return None
	}
}

// Map is a compiled topology. It never changes and may be shared freely.
type Map struct {
	epoch  int64
	cells  []Cell // in name order
	routes [Count]Route
}

// Compile computes the owners of all slots. The order of cells does not matter.
func Compile(epoch int64, cells []Cell) (*Map, error) {
	m := &Map{epoch: epoch, cells: slices.Clone(cells)}
	slices.SortFunc(m.cells, func(a, b Cell) int { return cmp.Compare(a.Name, b.Name) })
	if err := validate(epoch, m.cells); err != nil {
		return nil, fmt.Errorf("compiling the topology of epoch %d: %w", epoch, err)
	}

	before, after := newRace(), newRace()
	for i, cell := range m.cells {
		if cell.State == Failed {
			continue
		}
		numbers := cell.draws()
		if cell.State != In {
			before.enter(Index(i), uint32(cell.Weight), numbers)
		}
		if cell.State != Out {
			after.enter(Index(i), uint32(cmp.Or(cell.TargetWeight, cell.Weight)), numbers)
		}
	}
	if before.empty() {
		before = after // the first cells of a topology: nothing has to move
	}
	for slot := range m.routes {
		old, target := before.places[slot], after.places[slot]
		m.routes[slot] = Route{Old: old.first.cell, New: target.first.cell, OldBackup: old.second.cell, Backup: target.second.cell}
	}
	return m, nil
}

func validate(epoch int64, sorted []Cell) error {
	if epoch < 0 {
		return errors.New("the epoch is negative")
	}
	if len(sorted) > MaxCells {
		return fmt.Errorf("%d cells are more than the maximum of %d", len(sorted), MaxCells)
	}
	owners := 0
	for i, cell := range sorted {
		switch {
		case cell.Name == "":
			return errors.New("a cell has no name")
		case i > 0 && sorted[i-1].Name == cell.Name:
			return fmt.Errorf("cell %q is listed twice", cell.Name)
		case cell.State > Failed:
			return fmt.Errorf("cell %q has the unknown state %v", cell.Name, cell.State)
		case cell.Weight < 1:
			return fmt.Errorf("cell %q has weight %d; use at least 1, and state Out to drain a cell", cell.Name, cell.Weight)
		case cell.TargetWeight < 0:
			return fmt.Errorf("cell %q has the negative target weight %d", cell.Name, cell.TargetWeight)
		}
		if cell.State == Normal || cell.State == In {
			owners++
		}
	}
	if owners == 0 {
		return errors.New("no cell is Normal or In, so no cell would own the objects; keep at least one")
	}
	return nil
}

// race finds the two cells with the best draws for every slot.
type race struct {
	places []places
}

type places struct {
	first, second entry
}

type entry struct {
	draw   uint64
	weight uint32
	cell   Index
}

func newRace() *race {
	r := &race{places: make([]places, Count)}
	for slot := range r.places {
		r.places[slot] = places{entry{cell: None}, entry{cell: None}}
	}
	return r
}

func (r *race) empty() bool { return r.places[0].first.cell == None }

// enter adds a cell. Cells enter in name order and only a strictly better draw wins, so a tie goes to the first name.
func (r *race) enter(cell Index, weight uint32, numbers []uint64) {
	for slot, draw := range numbers {
		e, p := entry{draw: draw, weight: weight, cell: cell}, &r.places[slot]
		switch {
		case p.first.cell == None || e.beats(p.first):
			p.first, p.second = e, p.first
		case p.second.cell == None || e.beats(p.second):
			p.second = e
		}
	}
}

func (e entry) beats(other entry) bool { return beats(e.draw, e.weight, other.draw, other.weight) }

// Epoch returns the topology's generation.
func (m *Map) Epoch() int64 { return m.epoch }

// Route returns the owners of a slot.
func (m *Map) Route(slot Slot) Route { return m.routes[slot%Count] }

// Cells returns the number of cells, Failed ones included; their indexes are below it.
func (m *Map) Cells() int { return len(m.cells) }

// Cell returns the cell with an index below Cells.
func (m *Map) Cell(i Index) Cell { return m.cells[i] }

// Name returns the name of the cell with index i, and "" for None.
func (m *Map) Name(i Index) string {
	if int(i) >= len(m.cells) {
		return ""
	}
	return m.cells[i].Name
}

// Names returns the names of all cells in index order.
func (m *Map) Names() []string {
	names := make([]string, len(m.cells))
	for i, cell := range m.cells {
		names[i] = cell.Name
	}
	return names
}

// Index returns the index of the cell called name.
func (m *Map) Index(name string) (Index, bool) {
	i, found := slices.BinarySearchFunc(m.cells, name, func(c Cell, name string) int { return cmp.Compare(c.Name, name) })
	if !found {
		return None, false
	}
	return Index(i), true
}
