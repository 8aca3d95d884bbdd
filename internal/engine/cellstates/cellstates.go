// Package cellstates tells engines which cells are gone, so that what those have recorded on the hub no longer counts.
package cellstates

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// States are the states of all cells.
type States struct {
	known    bool
	listed   map[string]cellplanev1alpha1.CellState
	promoted map[string]bool
}

// Read reads the states from the hub. Without a topology, no cell is gone.
func Read(ctx context.Context, hub client.Client) (*States, error) {
	// The cells are read before the topology: a cell that is promoted for an older failure is no longer Failed then.
	var cells cellplanev1alpha1.CellList
	if err := hub.List(ctx, &cells); err != nil {
		return nil, fmt.Errorf("listing cells: %w", err)
	}
	var topology cellplanev1alpha1.CellTopology
	if err := hub.Get(ctx, client.ObjectKey{Name: cellplanev1alpha1.CellTopologyName}, &topology); err != nil {
		if apierrors.IsNotFound(err) {
			return &States{}, nil
		}
		return nil, fmt.Errorf("reading the topology: %w", err)
	}
	return Of(&topology.Spec, cells.Items), nil
}

// Of returns the states by a topology and its cells.
func Of(topology *cellplanev1alpha1.CellTopologySpec, cells []cellplanev1alpha1.Cell) *States {
	s := &States{known: true, listed: map[string]cellplanev1alpha1.CellState{}, promoted: map[string]bool{}}
	for _, listed := range topology.Cells {
		s.listed[listed.Name] = listed.State
	}
	for i := range cells {
		s.promoted[cells[i].Name] = meta.IsStatusConditionTrue(cells[i].Status.Conditions, names.CellPromoted)
	}
	return s
}

// Gone reports whether a cell is not in the topology any more, or has failed and was taken over: other cells have its workloads.
func (s *States) Gone(cell string) bool {
	state, listed := s.listed[cell]
	return s.known && (!listed || state == cellplanev1alpha1.CellStateFailed && s.promoted[cell])
}

// Failing reports whether a cell has failed and is yet to be taken over. Until then no other cell has its workloads.
func (s *States) Failing(cell string) bool {
	return s.listed[cell] == cellplanev1alpha1.CellStateFailed && !s.promoted[cell]
}
