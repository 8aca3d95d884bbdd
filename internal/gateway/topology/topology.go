package topology

import (
	"context"
	"fmt"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/slots"
)

// Topology is what a Source delivers.
type Topology struct {
	// Epoch is the generation of the CellTopology.
	Epoch int64 `json:"epoch"`
	// Cells are the cells in any order.
	Cells []Cell `json:"cells"`
	// MovedSlots is the bitmap of slots whose objects have all moved, lowest bit first.
	MovedSlots []byte `json:"movedSlots,omitempty"`
}

// Cell is one cell of a topology and how it is reached.
type Cell struct {
	Name         string                      `json:"name"`
	Weight       int32                       `json:"weight"`
	TargetWeight int32                       `json:"targetWeight,omitempty"`
	State        cellplanev1alpha1.CellState `json:"state,omitempty"`
	Endpoint     fleet.Endpoint              `json:"endpoint"`
}

// Source delivers the topology, first when it is known and then whenever it has changed, until the context ends.
type Source interface {
	Run(ctx context.Context, deliver func(Topology)) error
}

// View is a compiled topology with connections to its cells. It never changes.
type View struct {
	*slots.Map
	// Upstreams are the connections to the cells, by index; nil for a cell that cannot be connected to.
	Upstreams []*fleet.Upstream
	moved     []byte
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
	if route.Moving() && int(slot/8) < len(v.moved) && v.moved[slot/8]&(1<<(slot%8)) != 0 {
		route.Old = route.New
	}
	return route
}

// compile makes a View. It fails only if the topology makes no sense; cells that cannot be connected to are in the second error.
func compile(t Topology, connections *fleet.Cells) (view *View, invalid, unconnected error) {
	cells := make([]slots.Cell, len(t.Cells))
	endpoints := map[string]fleet.Endpoint{}
	for i, cell := range t.Cells {
		state, err := stateOf(cell.State)
		if err != nil {
			return nil, fmt.Errorf("cell %s: %w", cell.Name, err), nil
		}
		cells[i] = slots.Cell{Name: cell.Name, Weight: cell.Weight, TargetWeight: cell.TargetWeight, State: state}
		endpoints[cell.Name] = cell.Endpoint
	}
	compiled, err := slots.Compile(t.Epoch, cells)
	if err != nil {
		return nil, err, nil
	}
	upstreams, err := connections.Connect(compiled.Names(), endpoints)
	return &View{Map: compiled, Upstreams: upstreams, moved: t.MovedSlots}, nil, err
}

func stateOf(state cellplanev1alpha1.CellState) (slots.State, error) {
	switch state {
	case cellplanev1alpha1.CellStateNormal, "":
		return slots.Normal, nil
	case cellplanev1alpha1.CellStateIn:
		return slots.In, nil
	case cellplanev1alpha1.CellStateOut:
		return slots.Out, nil
	case cellplanev1alpha1.CellStateFailed:
		return slots.Failed, nil
	default:
		return 0, fmt.Errorf("the state %q is unknown", state)
	}
}
