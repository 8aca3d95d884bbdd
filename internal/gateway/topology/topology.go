package topology

import (
	"context"
	"fmt"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/short"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
)

// Topology is what a Source delivers.
type Topology struct {
	// Epoch is the generation of the CellTopology.
	Epoch int64 `json:"epoch"`
	// Cells are the cells in any order.
	Cells []Cell `json:"cells"`
	// Ready says that the epoch is in force: cells refuse requests that carry an earlier one.
	Ready bool `json:"ready,omitempty"`
	// MovedSlots is the bitmap of slots whose objects have all moved, lowest bit first.
	MovedSlots []byte `json:"movedSlots,omitempty"`
	// From holds, for each cell that is new in the epoch, the resourceVersion from which it is watched.
	From map[string]uint64 `json:"from,omitempty"`
	// Before holds, for the other cells of an epoch with new ones, resourceVersions from before those in From were read.
	Before map[string]uint64 `json:"before,omitempty"`
	// Leftovers says that cells may have copies of objects that have moved to others.
	Leftovers bool `json:"leftovers,omitempty"`
	// Left are the cells that have left in the epoch. Watches that have not seen all of their events still read them.
	Left []LeftCell `json:"left,omitempty"`
	// Owners are the encoded owners of all slots. Without them, objects are shown with the resourceVersions of their cells.
	Owners []byte `json:"owners,omitempty"`
}

// WithOwners adds the owners of all slots, computed from those of the topology before, which may be nil. It is for topologies that no hub
// manager publishes.
func (t Topology) WithOwners(before *slots.Owners) (Topology, *slots.Owners, error) {
	compiled, err := t.compile()
	if err != nil {
		return t, nil, err
	}
	owners, err := before.Next(compiled)
	if err != nil {
		return t, nil, err
	}
	t.Owners, err = owners.Encode()
	return t, owners, err
}

// LeftCell is a cell that is no longer part of the topology.
type LeftCell struct {
	Name string `json:"name"`
	// Least is the resourceVersion after which no event of the cell matters.
	Least uint64 `json:"least"`
	// Endpoint may be empty if the cell is gone.
	Endpoint fleet.Endpoint `json:"endpoint"`
}

// Cell is one cell of a topology, with its endpoint.
type Cell struct {
	Name         string                      `json:"name"`
	Weight       int32                       `json:"weight"`
	TargetWeight int32                       `json:"targetWeight,omitempty"`
	Seed         int32                       `json:"seed,omitempty"`
	State        cellplanev1alpha1.CellState `json:"state,omitempty"`
	Endpoint     fleet.Endpoint              `json:"endpoint"`
}

// Source delivers the topology once it is known and whenever it changes, until the context ends.
type Source interface {
	Run(ctx context.Context, deliver func(Topology)) error
}

// View is a compiled topology with connections to its cells. It never changes.
type View struct {
	routing.View
	// Upstreams are the connections to the cells, by index; nil for a cell that cannot be connected to.
	Upstreams []*fleet.Upstream
	// Short are connections for short requests, by index; nil for a cell whose requests all use Upstreams.
	Short []*short.Connections
	// Owners say since when the cells own their slots; nil if that is not known.
	Owners *slots.Owners

	// Leftovers says that cells may have copies of objects that have moved to others.
	Leftovers bool

	// past are the owners of earlier epochs, latest first. A watch may show events of their time.
	past []*slots.Owners
	// numbers are those of the cells, by index; 0 if a cell has none.
	numbers []uint16

	from   map[string]uint64
	before map[string]uint64
	left   map[string]uint64
	// superseded is closed when requests are routed by a later epoch. All Views of an epoch share it.
	superseded chan struct{}
}

// Superseded is closed when requests are routed by a later epoch.
func (v *View) Superseded() <-chan struct{} { return v.superseded }

// Left returns the cells that have left in the epoch, with the resourceVersions after which none of their events matters.
func (v *View) Left() map[slots.Index]uint64 {
	left := make(map[slots.Index]uint64, len(v.left))
	for name, least := range v.left {
		if i, found := v.Index(name); found {
			left[i] = least
		}
	}
	return left
}

// compile makes a View. The second error names cells that cannot be connected to; the View is usable without them.
func compile(t Topology, connections *fleet.Cells) (view *View, invalid, unconnected error) {
	compiled, err := t.compile()
	if err != nil {
		return nil, err, nil
	}
	view = &View{
		View: routing.View{Map: compiled, Ready: t.Ready, MovedSlots: t.MovedSlots}, Leftovers: t.Leftovers,
		from: t.From, before: t.Before, left: map[string]uint64{}, superseded: make(chan struct{}),
	}
	for _, cell := range t.Left {
		view.left[cell.Name] = cell.Least
	}
	if len(t.Owners) > 0 {
		if view.Owners, err = slots.DecodeOwners(t.Owners); err != nil {
			return nil, err, nil
		}
	}
	if connections != nil {
		view.Upstreams, unconnected = connections.Connect(compiled.Names(), t.endpoints())
	}
	return view, nil, unconnected
}

// compile computes the owners of the slots. Cells that have left keep their index, since positions refer to it, and own nothing.
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
		return 0, fmt.Errorf("unknown state %q", state)
	}
}
