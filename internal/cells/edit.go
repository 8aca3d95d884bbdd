package cells

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/slots"
)

// Edit is a change of a topology.
type Edit func(*v1alpha1.CellTopologySpec) error

// Add has a cell join with a weight.
func Add(name string, weight int32) Edit {
	return func(spec *v1alpha1.CellTopologySpec) error {
		if weight < 1 {
			return fmt.Errorf("the weight of a cell is at least 1, not %d", weight)
		}
		if cell := find(spec, name); cell != nil {
			switch cell.State {
			case v1alpha1.CellStateFailed:
				return fmt.Errorf("%s has failed; use `cellplane cells rejoin %s` to have it join again", name, name)
			case v1alpha1.CellStateIn:
				return fmt.Errorf("%s is joining already", name)
			default:
				return fmt.Errorf("%s is in the topology already; use `cellplane cells weight %s` to change its share", name, name)
			}
		}
		if err := idle(spec); err != nil {
			return err
		}
		return appendCell(spec, v1alpha1.TopologyCell{Name: name, Weight: weight, State: v1alpha1.CellStateIn})
	}
}

// First returns the initial topology of a federation.
func First(names ...string) (v1alpha1.CellTopologySpec, error) {
	var spec v1alpha1.CellTopologySpec
	for _, name := range names {
		if err := appendCell(&spec, v1alpha1.TopologyCell{Name: name, Weight: 1, State: v1alpha1.CellStateNormal}); err != nil {
			return spec, err
		}
	}
	return spec, nil
}

// appendCell adds a cell with the seed that keeps shares close to weights.
func appendCell(spec *v1alpha1.CellTopologySpec, cell v1alpha1.TopologyCell) error {
	list, err := listed(spec)
	if err != nil {
		return err
	}
	cell.Seed = int32(slots.Seed(list, slots.Cell{Name: cell.Name, Weight: cell.Weight}))
	spec.Cells = append(spec.Cells, cell)
	return nil
}

// Drain has a cell leave after its objects have moved to the others.
func Drain(name string) Edit {
	return func(spec *v1alpha1.CellTopologySpec) error {
		cell, err := present(spec, name)
		if err != nil {
			return err
		}
		switch cell.State {
		case v1alpha1.CellStateOut:
			return fmt.Errorf("%s is being drained already", name)
		case v1alpha1.CellStateFailed:
			return fmt.Errorf("%s has failed and owns nothing", name)
		}
		if err := idle(spec); err != nil {
			return err
		}
		if others(spec, name) == 0 {
			return fmt.Errorf("%s is the only cell; add another before it can be drained", name)
		}
		cell.State = v1alpha1.CellStateOut
		return nil
	}
}

// Weight changes the weight of a cell.
func Weight(name string, weight int32) Edit {
	return func(spec *v1alpha1.CellTopologySpec) error {
		if weight < 1 {
			return fmt.Errorf("the weight of a cell is at least 1, not %d; use `cellplane cells drain %s` to empty it", weight, name)
		}
		cell, err := present(spec, name)
		if err != nil {
			return err
		}
		if cell.State == v1alpha1.CellStateFailed {
			return fmt.Errorf("%s has failed and owns nothing", name)
		}
		if err := idle(spec); err != nil {
			return err
		}
		if cell.Weight == weight {
			return fmt.Errorf("%s has weight %d already", name, weight)
		}
		cell.TargetWeight = ptr.To(weight)
		return nil
	}
}

// Fail declares a cell failed: its backup cells take over its slots.
func Fail(name string) Edit {
	return func(spec *v1alpha1.CellTopologySpec) error {
		cell, err := present(spec, name)
		if err != nil {
			return err
		}
		if cell.State == v1alpha1.CellStateFailed {
			return fmt.Errorf("%s has been declared failed already", name)
		}
		if others(spec, name) == 0 {
			return fmt.Errorf("%s is the only cell, and no other can take over its slots; restore its store instead", name)
		}
		// Who takes over needs to know which slots the cell may have owned: those that it would own with the higher weight.
		if cell.TargetWeight != nil {
			cell.Weight = max(cell.Weight, *cell.TargetWeight)
		}
		cell.State, cell.TargetWeight = v1alpha1.CellStateFailed, nil
		return nil
	}
}

// Rejoin has a failed cell join again, empty.
func Rejoin(name string) Edit {
	return func(spec *v1alpha1.CellTopologySpec) error {
		cell, err := present(spec, name)
		if err != nil {
			return err
		}
		if cell.State != v1alpha1.CellStateFailed {
			return fmt.Errorf("%s has not failed: its state is %s", name, cell.State)
		}
		if err := idle(spec); err != nil {
			return err
		}
		cell.State = v1alpha1.CellStateIn
		return nil
	}
}

// Reverse reverses the change under way: what has moved moves back.
func Reverse(spec *v1alpha1.CellTopologySpec) error {
	if Running(spec) == "" {
		return fmt.Errorf("no change is under way")
	}
	for i := range spec.Cells {
		cell := &spec.Cells[i]
		switch {
		case cell.State == v1alpha1.CellStateIn:
			cell.State = v1alpha1.CellStateOut
		case cell.State == v1alpha1.CellStateOut:
			cell.State = v1alpha1.CellStateIn
		case cell.TargetWeight != nil:
			cell.Weight, cell.TargetWeight = *cell.TargetWeight, ptr.To(cell.Weight)
		}
	}
	return nil
}

// Running describes the change under way. It is empty if there is none.
func Running(spec *v1alpha1.CellTopologySpec) string {
	var parts []string
	for _, cell := range spec.Cells {
		switch {
		case cell.State == v1alpha1.CellStateIn:
			parts = append(parts, cell.Name+" is joining")
		case cell.State == v1alpha1.CellStateOut:
			parts = append(parts, cell.Name+" is leaving")
		case cell.TargetWeight != nil:
			parts = append(parts, fmt.Sprintf("%s goes from weight %d to %d", cell.Name, cell.Weight, *cell.TargetWeight))
		}
	}
	return strings.Join(parts, ", ")
}

func idle(spec *v1alpha1.CellTopologySpec) error {
	if running := Running(spec); running != "" {
		return fmt.Errorf("another change is under way: %s; wait for its end, or reverse it with `cellplane cells abort`", running)
	}
	return nil
}

func present(spec *v1alpha1.CellTopologySpec, name string) (*v1alpha1.TopologyCell, error) {
	if cell := find(spec, name); cell != nil {
		return cell, nil
	}
	names := make([]string, len(spec.Cells))
	for i, cell := range spec.Cells {
		names[i] = cell.Name
	}
	return nil, fmt.Errorf("there is no cell %s in the topology; its cells are %s", name, strings.Join(names, ", "))
}

func find(spec *v1alpha1.CellTopologySpec, name string) *v1alpha1.TopologyCell {
	i := slices.IndexFunc(spec.Cells, func(c v1alpha1.TopologyCell) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &spec.Cells[i]
}

// others counts the other cells that could own a cell's slots.
func others(spec *v1alpha1.CellTopologySpec, name string) int {
	n := 0
	for _, cell := range spec.Cells {
		if cell.Name != name && (cell.State == v1alpha1.CellStateNormal || cell.State == v1alpha1.CellStateIn) {
			n++
		}
	}
	return n
}
