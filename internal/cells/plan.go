package cells

import (
	"fmt"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/slots"
)

// Plan is the effect of an edit.
type Plan struct {
	// Shares of all cells, in name order.
	Shares []Share
	// Flows are the slots that would change their owner.
	Flows []slots.Flow
	// Joins is the new entry of the topology, if a cell would join.
	Joins *v1alpha1.TopologyCell
}

// Share is the fraction of all slots that a cell owns.
type Share struct {
	Cell          string
	Before, After float64
	// Ideal is the fraction by weight after the edit.
	Ideal float64
}

// Moved returns the fraction of all slots that change their owner.
func (p Plan) Moved() float64 {
	var sum float64
	for _, flow := range p.Flows {
		sum += flow.Share()
	}
	return sum
}

// Preview returns the effect of an edit without changing the topology.
func Preview(topology v1alpha1.CellTopologySpec, edit Edit) (Plan, error) {
	edited := topology.DeepCopy()
	if err := edit(edited); err != nil {
		return Plan{}, err
	}
	before, err := Compile(0, &topology)
	if err != nil {
		return Plan{}, err
	}
	after, err := Compile(0, edited)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Shares: shares(before, after, edited), Flows: slots.Moves(before, after)}
	if last := edited.Cells[len(edited.Cells)-1]; len(edited.Cells) > len(topology.Cells) {
		plan.Joins = &last
	}
	return plan, nil
}

// Compile returns the slot map of a topology.
func Compile(epoch int64, topology *v1alpha1.CellTopologySpec) (*slots.Map, error) {
	list, err := listed(topology)
	if err != nil {
		return nil, err
	}
	return slots.Compile(epoch, list)
}

// listed converts the cells of a topology.
func listed(topology *v1alpha1.CellTopologySpec) ([]slots.Cell, error) {
	list := make([]slots.Cell, len(topology.Cells))
	for i, cell := range topology.Cells {
		list[i] = slots.Cell{Name: cell.Name, Weight: cell.Weight, Seed: uint32(cell.Seed)}
		if cell.TargetWeight != nil {
			list[i].TargetWeight = *cell.TargetWeight
		}
		switch cell.State {
		case v1alpha1.CellStateNormal, "":
			list[i].State = slots.Normal
		case v1alpha1.CellStateIn:
			list[i].State = slots.In
		case v1alpha1.CellStateOut:
			list[i].State = slots.Out
		case v1alpha1.CellStateFailed:
			list[i].State = slots.Failed
		default:
			return nil, fmt.Errorf("cell %s has the unknown state %q", cell.Name, cell.State)
		}
	}
	return list, nil
}

func shares(before, after *slots.Map, edited *v1alpha1.CellTopologySpec) []Share {
	owned := map[string]float64{}
	for _, holding := range before.Balance() {
		owned[holding.Cell] = float64(holding.After) / slots.Count
	}
	ideal := idealShares(edited)
	balance := after.Balance()
	result := make([]Share, len(balance))
	for i, holding := range balance {
		result[i] = Share{Cell: holding.Cell, Before: owned[holding.Cell], After: float64(holding.After) / slots.Count, Ideal: ideal[holding.Cell]}
	}
	return result
}

// idealShares returns the shares by weight.
func idealShares(topology *v1alpha1.CellTopologySpec) map[string]float64 {
	weights, sum := map[string]float64{}, 0.0
	for _, cell := range topology.Cells {
		if cell.State == v1alpha1.CellStateOut || cell.State == v1alpha1.CellStateFailed {
			continue
		}
		weight := float64(cell.Weight)
		if cell.TargetWeight != nil {
			weight = float64(*cell.TargetWeight)
		}
		weights[cell.Name] = weight
		sum += weight
	}
	for name := range weights {
		weights[name] /= sum
	}
	return weights
}
