package slots

import (
	"cmp"
	"math"
	"math/big"
	"slices"
)

// Flow is a set of slots that change from one cell to another.
type Flow struct {
	// From and To are the names of the cells.
	From, To string
	// Slots are the slots that change, in ascending order.
	Slots []Slot
}

// Share returns the part of all slots that flows, between 0 and 1.
func (f Flow) Share() float64 { return float64(len(f.Slots)) / Count }

// Flows returns what the change under way in m moves, ordered by the names of the cells; nothing if no change is under way.
func (m *Map) Flows() []Flow {
	return flows(func(slot Slot) (string, string) {
		route := m.Route(slot)
		return m.Name(route.Old), m.Name(route.New)
	})
}

// Moves returns what differs between two topologies once their changes have finished: from the owners before ends with to those
// after ends with.
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
	// Backup is the number of slots it keeps the backup of after the change.
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

// Stages returns, for every cell, when to read it relative to the others if what is read of all has to fit together while slots move:
// each slot's new owner is in a lower stage than its old one. Without a change all are in stage 0.
//
// There always is such an order. A slot moves only to a cell whose weight has grown more than that of the cell it leaves (a joining
// cell's weight grows from nothing, a leaving one's shrinks to nothing), so it goes by the growth.
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

// growth is the ratio of a cell's weights after and before the change. A joining cell's stands for infinity: no other is as high.
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
