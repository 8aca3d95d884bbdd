package routing

import (
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
)

// HubIndex returns the index of the hub, which is that after the last cell; None if the hub does not count as a cell.
func (v *View) HubIndex() slots.Index {
	if !v.Hub {
		return slots.None
	}
	return slots.Index(v.Map.Cells())
}

// withHub reports whether objects of a placement are on the hub too: bindings, Works and events of templates that live there.
func (v *View) withHub(place placement.Place) bool {
	return v.Hub && (place == placement.ByTemplate || place == placement.Anywhere)
}

// Places returns the indexes of the cells that may hold objects of a placement, and that of the hub if it may.
func (v *View) Places(place placement.Place) []slots.Index {
	cells := v.Cells()
	if v.withHub(place) {
		cells = append(cells, v.HubIndex())
	}
	return cells
}

// Width returns the number of indexes of a placement, which is the number of fields in its positions.
func (v *View) Width(place placement.Place) int {
	if v.withHub(place) {
		return v.Map.Cells() + 1
	}
	return v.Map.Cells()
}

// Name returns the name of a cell, or "hub".
func (v *View) Name(i slots.Index) string {
	if v.Hub && i == v.HubIndex() {
		return "hub"
	}
	return v.Map.Name(i)
}

// Stages returns the order in which a placement is read, by index: cells as slots.Map.Stages says, and the hub first. Nothing moves there.
func (v *View) Stages(place placement.Place) []int {
	stages := make([]int, v.Width(place))
	copy(stages, v.Map.Stages())
	return stages
}
