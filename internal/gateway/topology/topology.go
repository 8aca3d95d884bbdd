package topology

import (
	"context"
	"fmt"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/short"
	"github.com/cellplane/cellplane/internal/slots"
)

// Topology is what a Source delivers.
type Topology struct {
	// Epoch is the generation of the CellTopology.
	Epoch int64 `json:"epoch"`
	// Cells are the cells in any order.
	Cells []Cell `json:"cells"`
	// Ready says that what the epoch needs has been done, so that requests may be routed by it: the cells refuse whoever still routes
	// by an earlier one.
	Ready bool `json:"ready,omitempty"`
	// MovedSlots is the bitmap of slots whose objects have all moved, lowest bit first.
	MovedSlots []byte `json:"movedSlots,omitempty"`
	// From are the cells that are new in the epoch, with the resourceVersion from which they are watched.
	From map[string]uint64 `json:"from,omitempty"`
	// Left are the cells that have left in the epoch. Whoever has not seen everything in them can still read it there.
	Left []LeftCell `json:"left,omitempty"`
}

// LeftCell is a cell that is no longer part of the topology.
type LeftCell struct {
	Name string `json:"name"`
	// Least is the resourceVersion after which nothing in the cell concerns anybody.
	Least uint64 `json:"least"`
	// Endpoint is how it is reached; it may be empty if the cell is gone.
	Endpoint fleet.Endpoint `json:"endpoint"`
}

// Cell is one cell of a topology and how it is reached.
type Cell struct {
	Name         string                      `json:"name"`
	Weight       int32                       `json:"weight"`
	TargetWeight int32                       `json:"targetWeight,omitempty"`
	Seed         int32                       `json:"seed,omitempty"`
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
	// Short are connections for short requests, by index; nil for a cell whose requests all go the other way.
	Short []*short.Connections

	ready bool
	moved []byte
	from  map[string]uint64
	left  map[string]uint64
	// ahead is a later topology that is known, but not ready.
	ahead *slots.Map
	// superseded is closed when requests are routed by a later epoch. All Views of an epoch share it.
	superseded chan struct{}
}

// Ready reports whether the epoch is in force: nobody can create anything by an earlier one.
func (v *View) Ready() bool { return v.ready }

// Superseded is closed when requests are routed by a later epoch.
func (v *View) Superseded() <-chan struct{} { return v.superseded }

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

// Latest returns the highest epoch that is known, which may not be ready yet. What is the same in all epochs is done in its name.
func (v *View) Latest() int64 {
	if v.ahead != nil {
		return v.ahead.Epoch()
	}
	return v.Epoch()
}

// Settled reports whether a slot's objects are made in the same cell in the latest epoch too.
func (v *View) Settled(slot slots.Slot) bool {
	if v.ahead == nil {
		return true
	}
	next := v.ahead.Route(slot)
	return !next.Moving() && v.ahead.Name(next.New) == v.Name(v.Locate(slot).New)
}

// Left returns the cells that have left in the epoch, with the resourceVersions after which nothing in them concerns anybody.
func (v *View) Left() map[slots.Index]uint64 {
	left := make(map[slots.Index]uint64, len(v.left))
	for name, least := range v.left {
		if i, found := v.Index(name); found {
			left[i] = least
		}
	}
	return left
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
	compiled, err := t.compile()
	if err != nil {
		return nil, err, nil
	}
	view = &View{Map: compiled, ready: t.Ready, moved: t.MovedSlots, from: t.From, left: map[string]uint64{}, superseded: make(chan struct{})}
	for _, cell := range t.Left {
		view.left[cell.Name] = cell.Least
	}
	if connections != nil {
		view.Upstreams, unconnected = connections.Connect(compiled.Names(), t.endpoints())
	}
	return view, nil, unconnected
}

// compile computes the owners of the slots. Cells that have left keep their places in positions, and own nothing.
func (t Topology) compile() (*slots.Map, error) {
	cells := make([]slots.Cell, 0, len(t.Cells)+len(t.Left))
	for _, cell := range t.Cells {
		state, err := stateOf(cell.State)
		if err != nil {
			return nil, fmt.Errorf("cell %s: %w", cell.Name, err)
		}
		cells = append(cells, slots.Cell{Name: cell.Name, Weight: cell.Weight, TargetWeight: cell.TargetWeight, Seed: uint32(cell.Seed), State: state})
	}
	for _, cell := range t.Left {
		cells = append(cells, slots.Cell{Name: cell.Name, Weight: 1, State: slots.Failed})
	}
	return slots.Compile(t.Epoch, cells)
}

func (t Topology) endpoints() map[string]fleet.Endpoint {
	endpoints := map[string]fleet.Endpoint{}
	for _, cell := range t.Cells {
		endpoints[cell.Name] = cell.Endpoint
	}
	for _, cell := range t.Left {
		if cell.Endpoint.Server != "" {
			endpoints[cell.Name] = cell.Endpoint
		}
	}
	return endpoints
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
