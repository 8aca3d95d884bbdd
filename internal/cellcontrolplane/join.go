package cellcontrolplane

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/controlplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cells"
)

// join lets the cell join the topology if its Cluster says so. It reports whether that is done, or not wanted.
func (r *run) join(ctx context.Context, h *hub) (done bool, err error) {
	no := func(reason, message string) {
		r.set(v1alpha1.ConditionInTopology, metav1.ConditionFalse, reason, message)
	}
	if entry := r.entry(h); entry != nil {
		switch entry.State {
		case cellplanev1alpha1.CellStateIn:
			no("Joining", h.progress())
		case cellplanev1alpha1.CellStateOut:
			no("Leaving", h.progress())
		case cellplanev1alpha1.CellStateFailed:
			no("Failed", fmt.Sprintf("The cell has failed, and others have its share. `cellplane cells rejoin %s` lets it join again.", r.cell))
		default:
			r.set(v1alpha1.ConditionInTopology, metav1.ConditionTrue, "Joined", "")
			return true, nil
		}
		return false, nil
	}
	if !r.wantsTopology() {
		no("NotWanted", fmt.Sprintf("The Cluster does not have the label %s: \"true\".", names.TopologyLabel))
		return true, nil
	}
	if h.topology == nil {
		no("NoTopology", "The federation has no CellTopology yet.")
		return false, nil
	}
	var cell cellplanev1alpha1.Cell
	if err := h.Get(ctx, types.NamespacedName{Name: r.cell}, &cell); err != nil {
		return false, fmt.Errorf("reading the Cell %s: %w", r.cell, err)
	}
	for _, condition := range []string{names.CellReady, names.CellGlobalsCopied} {
		if !meta.IsStatusConditionTrue(cell.Status.Conditions, condition) {
			no("CellNotReady", fmt.Sprintf("The condition %s of the Cell is not True.", condition))
			return false, nil
		}
	}
	if err := cells.Add(r.cell, max(r.plane.Spec.Weight, 1))(&h.topology.Spec); err != nil {
		no("TopologyChanging", err.Error())
		return false, nil
	}
	return false, r.changeTopology(ctx, h, func(message string) { no("Refused", message) }, func() { no("Joining", h.progress()) })
}

// changeTopology writes the topology. What the hub refuses is told; a conflict is met again.
func (r *run) changeTopology(ctx context.Context, h *hub, refused func(string), begun func()) error {
	err := h.Update(ctx, h.topology)
	switch {
	case apierrors.IsInvalid(err):
		refused("The hub refuses the change: " + err.Error())
		return nil
	case err != nil:
		return fmt.Errorf("changing the topology: %w", err)
	}
	begun()
	return nil
}
