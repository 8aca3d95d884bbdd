package slots

import (
	"cmp"
	"math"
	"math/big"
	"slices"
)

// Flow is a set of slots that move from one cell to another.
type Flow struct {
	// From and To are the names of the cells.
	From, To string
	// Slots are the slots that move, in ascending order.
	Slots []Slot
}

// Share returns the fraction of all slots in the flow, between 0 and 1.
func (f Flow) Share() float64 { return float64(len(f.Slots)) / Count }

// Flows returns the slots that move in the change under way, ordered by the names of the cells.
func (m *Map) Flows() []Flow {
	return flows(func(slot Slot) (string, string) {
		route := m.Route(slot)
		return m.Name(route.Old), m.Name(route.New)
	})
}

// Moves returns the slots whose owners differ between two topologies after their changes have finished.
func Moves(before, after *Map) []Flow {
	return flows(func(slot Slot) (string, string) {
		return before.Name(before.Route(slot).New), after.Name(after.Route(slot).New)
	})
}

func flows(owners func(Slot) (from, to string)) []Flow {
	type pair struct{ from, to string }
	moved := map[pair][]Slot{}
	for slot := range Slot(Count) {
		if from, to := owners(slot); from != to {
			moved[pair{from, to}] = append(moved[pair{from, to}], slot)
		}
	}
	result := make([]Flow, 0, len(moved))
	for p, slots := range moved {
		result = append(result, Flow{From: p.from, To: p.to, Slots: slots})
	}
	slices.SortFunc(result, func(a, b Flow) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return result
}

// Holding is the number of slots of one cell.
type Holding struct {
	// Cell is the cell's name.
	Cell string
	// Before and After are the numbers of slots it owns before and after the change under way.
	Before, After int
	// Backup is the number of slots it is the backup cell of after the change.
	Backup int
}

// Balance returns the slots of every cell, in name order.
func (m *Map) Balance() []Holding {
	holdings := make([]Holding, len(m.cells))
	for i, cell := range m.cells {
		holdings[i].Cell = cell.Name
	}
	for _, route := range m.routes {
		holdings[route.Old].Before++
		holdings[route.New].After++
		if route.Backup != None {
			holdings[route.Backup].Backup++
		}
	}
	return holdings
}

// Stages returns, for every cell, the stage in which to read it so that a read of all cells is consistent while slots move: each slot's new
// owner is in a lower stage than its old one. Without a change all are in stage 0.
//
// Such an order always exists. A slot moves only to a cell whose weight grows more than that of the cell it leaves (a joining cell grows
// from zero, a leaving one shrinks to zero), so cells are ordered by their growth.
func (m *Map) Stages() []int {
	growths := make([]*big.Rat, len(m.cells))
	for i, cell := range m.cells {
		growths[i] = cell.growth()
	}
	stages := make([]int, len(m.cells))
	for i, cell := range m.cells {
		higher := map[string]struct{}{}
		for j, other := range m.cells {
			if other.State != Failed && growths[j].Cmp(growths[i]) > 0 {
				higher[growths[j].String()] = struct{}{}
			}
		}
		if cell.State != Failed {
			stages[i] = len(higher)
		}
	}
	return stages
}

// growth is the ratio of a cell's weights after and before the change. That of a joining cell stands for infinity.
func (c Cell) growth() *big.Rat {
	switch c.State {
	case In:
		return big.NewRat(math.MaxInt64, 1)
	case Out:
		return big.NewRat(0, 1)
	default:
		return big.NewRat(int64(cmp.Or(c.TargetWeight, c.Weight)), int64(c.Weight))
	}
}
