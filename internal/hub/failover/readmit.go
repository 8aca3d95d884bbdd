package failover

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/slots"
)

// isReadmitted reports whether a cell has returned since it last failed.
func isReadmitted(cell *cellplanev1alpha1.Cell) bool {
	fenced := meta.FindStatusCondition(cell.Status.Conditions, names.CellFenced)
	return fenced != nil && fenced.Reason == reasonReadmitted
}

// forgetPromotion resets the condition Promoted of a cell that has returned, so that its copies are promoted should
// it fail again.
func (t *Takeover) forgetPromotion(ctx context.Context, cell *cellplanev1alpha1.Cell) error {
	if !meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellPromoted) {
		return nil
	}
	return t.setCondition(ctx, cell, metav1.Condition{
		Type: names.CellPromoted, Status: metav1.ConditionFalse, Reason: reasonReadmitted, Message: "The cell has returned since its share was taken over.",
	})
}

// Readmit prepares a joining cell that had failed before: it is emptied, and objects that no backup has are saved.
func (t *Takeover) Readmit(ctx context.Context, topology *slots.Map, name string) error {
	cell := &cellplanev1alpha1.Cell{}
	if err := t.Fresh.Get(ctx, types.NamespacedName{Name: name}, cell); err != nil {
		return fmt.Errorf("reading the returning cell %s: %w", name, err)
	}
	if meta.FindStatusCondition(cell.Status.Conditions, names.CellFenced) == nil {
		return t.restoreAtHub(ctx, name) // it has never failed, but a cell of its name may have
	}
	if isReadmitted(cell) {
		if err := t.restoreAtHub(ctx, name); err != nil {
			return err
		}
		return t.forgetPromotion(ctx, cell)
	}
	returning, err := t.Open(ctx, name)
	if err != nil {
		return err
	}
	if err := returning.RaiseTerm(ctx, t.Term); err != nil {
		return err
	}
	stores, err := t.stores(ctx, topology)
	if err != nil {
		return err
	}
	delete(stores, name)
	if !meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellPromoted) {
		if err := t.promoteReturning(ctx, topology, cell); err != nil {
			return err
		}
	}
	emptying := Emptying{Topology: topology, Returning: returning, Stores: stores, Term: t.Term, Dir: t.StateDir, Now: time.Now()}
	emptied, err := emptying.Run(ctx)
	t.reportSalvaged(ctx, cell, emptied) // also after an error: the next attempt may find nothing
	t.reportUndeleted(ctx, cell, emptied)
	if err != nil {
		return err
	}
	closed, err := t.Fence(ctx, name)
	if err == nil {
		err = closed.Reopen(ctx, topology.Epoch(), t.Term)
	}
	if err != nil {
		return err
	}
	message := "The cell is empty."
	if emptied.Snapshot != "" {
		message = fmt.Sprintf("%d objects were removed and are in the snapshot %s; %d of them had not reached a backup.", emptied.Removed, emptied.Snapshot, len(emptied.Salvaged))
	}
	if count := len(emptied.Undeleted); count > 0 {
		message += fmt.Sprintf(" %d deletions had not reached a backup, so that these objects exist: %s.", count, someOf(emptied.Undeleted))
	}
	if err := t.readmitted(ctx, cell, message); err != nil {
		return err
	}
	return t.restoreAtHub(ctx, name)
}

// promoteReturning promotes the copies of a cell that returns before its slots were taken over. What is not promoted now would be lost.
func (t *Takeover) promoteReturning(ctx context.Context, topology *slots.Map, cell *cellplanev1alpha1.Cell) error {
	failed, err := withState(topology.Epoch(), topology, cell.Name, slots.Failed)
	if err != nil {
		return err
	}
	if t.Leases != nil {
		ended, err := t.endLeases(ctx, failed)
		if err == nil {
			err = waitUntil(ctx, ended)
		}
		if err != nil {
			return err
		}
	}
	if t.Follow != nil {
		// Not by this epoch: backups follow its topology, in which the cell joins, once the cell is empty.
		former, err := withState(topology.Epoch()-1, topology, cell.Name, slots.Failed)
		if err != nil {
			return err
		}
		t.Follow(former)
	}
	return t.promoteAll(ctx, failed, cell)
}

// readmitted records that a cell has returned. The order matters: a cell that is fenced and not promoted would be
// taken over again, from outdated copies.
func (t *Takeover) readmitted(ctx context.Context, cell *cellplanev1alpha1.Cell, message string) error {
	if err := t.setCondition(ctx, cell, metav1.Condition{Type: names.CellFenced, Status: metav1.ConditionFalse, Reason: reasonReadmitted, Message: message}); err != nil {
		return err
	}
	return t.forgetPromotion(ctx, cell)
}

// reportSalvaged reports the objects of a returning cell that no backup has.
func (t *Takeover) reportSalvaged(ctx context.Context, cell *cellplanev1alpha1.Cell, emptied Emptied) {
	if len(emptied.Salvaged) == 0 {
		return
	}
	t.Events.Eventf(cell, nil, corev1.EventTypeWarning, reasonSalvaged, "Rejoin", "%d objects had not reached a backup when the cell failed; they are saved as %s",
		len(emptied.Salvaged), someOf(emptied.Salvaged))
	for _, file := range emptied.Salvaged {
		klog.FromContext(ctx).Info("saved an object that had not reached a backup", "cell", cell.Name, "file", file)
	}
}

// reportUndeleted reports the objects that exist although the returning cell had deleted them.
func (t *Takeover) reportUndeleted(ctx context.Context, cell *cellplanev1alpha1.Cell, emptied Emptied) {
	if emptied.Unsure {
		klog.FromContext(ctx).Info("the history of a returning cell does not tell whether deletions were lost", "cell", cell.Name)
	}
	if len(emptied.Undeleted) == 0 {
		return
	}
	t.Events.Eventf(cell, nil, corev1.EventTypeWarning, reasonUndeleted, "Rejoin", "%d deletions had not reached a backup when the cell failed; delete these objects again: %s",
		len(emptied.Undeleted), someOf(emptied.Undeleted))
	for _, key := range emptied.Undeleted {
		klog.FromContext(ctx).Info("an object exists although it was deleted before its cell failed", "cell", cell.Name, "object", key)
	}
}
