package cellcontrolplane

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/controlplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/bootstrap"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/install"
)

// Reasons of the condition Deleting.
const (
	reasonDraining         = "Draining"
	reasonLastCell         = "LastCell"
	reasonTopologyChanging = "TopologyChanging"
	reasonSettling         = "Settling"
	reasonCellFailed       = "CellFailed"
	reasonRefused          = "Refused"
	reasonNameTaken        = "NameTaken"
	reasonHubNotReached    = "HubNotReached"
	reasonLingering        = "Lingering"
	reasonRemoving         = "Removing"
)

// leave drains the cell, and removes it when it holds nothing any more. Each step is decided by what the hub says now.
func (r *run) leave(ctx context.Context) (reconcile.Result, error) {
	again := reconcile.Result{RequeueAfter: soon}
	if !controllerutil.ContainsFinalizer(r.plane, finalizer) {
		return reconcile.Result{}, nil
	}
	if r.Release.Lists(r.cell) {
		r.deleting(reasonNameTaken, "The values of the installation list a cell of this name, whose objects would be deleted. Take it from the values, or remove the finalizer.")
		return again, nil
	}
	// 1. Reach the hub. Without it nobody knows what the cell holds.
	plain, err := install.RenderCell(r.Release, map[string]any{"name": r.cell}, nil)
	if err != nil {
		return again, err
	}
	plain.Config.Wrap = r.Wrap
	h, err := r.reachHub(ctx, plain.Config)
	if err != nil {
		r.deleting(reasonHubNotReached, fmt.Sprintf("%v. If the federation does not exist any more, remove the finalizer.", err))
		return again, nil
	}
	own := !h.foreign(plain.Config.Cells[0].Server)
	// 2. Drain the cell.
	if own {
		if drained, err := r.drain(ctx, h); err != nil || !drained {
			return again, err
		}
		// 3. Let it run on, for watches that read its last events.
		if left := r.lingers(h); left > 0 {
			r.deleting(reasonLingering, "The cell is drained. It runs on for some minutes, for watches that read its last events.")
			return reconcile.Result{RequeueAfter: left}, nil
		}
		// 4. Remove it from the hub, which refuses that if the topology has it again.
		r.deleting(reasonRemoving, "")
		if err := bootstrap.UnregisterCell(ctx, h, r.cell); err != nil {
			return again, err
		}
	}
	// 5. Remove what runs, and then keys and volumes.
	if err := r.Cluster.DeleteCell(ctx, r.Release, r.cell); err != nil {
		return again, err
	}
	if err := r.untell(ctx); err != nil {
		return again, err
	}
	return reconcile.Result{}, r.edit(ctx, func(plane *v1alpha1.CellControlPlane) bool { return controllerutil.RemoveFinalizer(plane, finalizer) })
}

func (r *run) deleting(reason, message string) {
	r.set(v1alpha1.ConditionDeleting, metav1.ConditionTrue, reason, message)
}

// drain drains the cell, and reports whether the topology has nothing more to do with it. What would lose objects is refused.
func (r *run) drain(ctx context.Context, h *hub) (done bool, err error) {
	if h.topology == nil {
		return true, nil // nothing has been stored in any cell
	}
	entry := r.entry(h)
	switch {
	case entry == nil && (h.topology.Status.ObservedGeneration != h.topology.Generation || h.topology.Status.Phase != cellplanev1alpha1.TopologyStable):
		r.deleting(reasonSettling, "The topology does not have the cell, and the hub manager has not come to the end of the last change yet.")
		return false, nil
	case entry == nil:
		return true, nil
	case entry.State == cellplanev1alpha1.CellStateOut:
		r.deleting(reasonDraining, h.progress())
		return false, nil
	case entry.State == cellplanev1alpha1.CellStateIn:
		r.deleting(reasonTopologyChanging, "The cell is joining. It is drained when it has joined; `cellplane cells abort` turns back what has moved.")
		return false, nil
	case entry.State == cellplanev1alpha1.CellStateFailed:
		r.deleting(reasonCellFailed, fmt.Sprintf("The cell has failed, and may have objects that no other cell has. Let it return with `cellplane cells rejoin %s`, or take it from the CellTopology to give them up.", r.cell))
		return false, nil
	}
	if err := cells.Drain(r.cell)(&h.topology.Spec); err != nil {
		reason := reasonTopologyChanging
		if cells.Running(&h.topology.Spec) == "" {
			reason = reasonLastCell
		}
		r.deleting(reason, err.Error())
		return false, nil
	}
	return false, r.changeTopology(ctx, h, func(message string) { r.deleting(reasonRefused, message) }, func() { r.deleting(reasonDraining, h.progress()) })
}

// lingers returns how long the drained cell has to run on.
func (r *run) lingers(h *hub) time.Duration {
	if r.status.DrainedTime == nil && h.cell != nil && r.wasDrained(h) {
		r.status.DrainedTime = &metav1.Time{Time: r.Now()}
	}
	if r.status.DrainedTime == nil {
		return 0
	}
	return r.status.DrainedTime.Add(r.Linger).Sub(r.Now())
}

// wasDrained reports whether the cell has left the topology a short time ago: this deletion has drained it, or the hub remembers its last revision.
func (r *run) wasDrained(h *hub) bool {
	if condition := meta.FindStatusCondition(r.status.Conditions, v1alpha1.ConditionDeleting); condition != nil && (condition.Reason == reasonDraining || condition.Reason == reasonSettling) {
		return true
	}
	if h.topology == nil {
		return false
	}
	for _, epoch := range h.topology.Status.Epochs {
		if _, left := epoch.Least[r.cell]; left {
			return true
		}
	}
	return false
}
