package failover

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/hub/cellstatus"
	"github.com/cellplane/cellplane/internal/slots"
)

// errChangedMeanwhile means that somebody else has written a condition since the cell was read: the cell may have returned, or failed again.
var errChangedMeanwhile = errors.New("somebody else has written it meanwhile")

// setCondition writes one condition, unless it has changed since the cell was read. Other writers own the others.
func (t *Takeover) setCondition(ctx context.Context, cell *cellplanev1alpha1.Cell, condition metav1.Condition) error {
	condition.ObservedGeneration = cell.Generation
	before := conditionOf(cell, condition.Type)
	if !meta.SetStatusCondition(&cell.Status.Conditions, condition) {
		return nil
	}
	for {
		err := t.applyCondition(ctx, cell, conditionOf(cell, condition.Type))
		if err == nil {
			break
		}
		if apierrors.IsConflict(err) {
			fresh := &cellplanev1alpha1.Cell{}
			if err = t.Fresh.Get(ctx, client.ObjectKeyFromObject(cell), fresh); err == nil {
				if fresh.UID == cell.UID && equality.Semantic.DeepEqual(conditionOf(fresh, condition.Type), before) {
					cell.ResourceVersion = fresh.ResourceVersion
					continue
				}
				err = errChangedMeanwhile
			}
		}
		return fmt.Errorf("writing the condition %s of cell %s: %w", condition.Type, cell.Name, err)
	}
	phases.WithLabelValues(cell.Name, condition.Type, condition.Reason).Inc()
	if condition.Type == names.CellFenced { // promotions have events of their own
		kind := corev1.EventTypeNormal
		if condition.Reason == reasonUnfenced {
			kind = corev1.EventTypeWarning
		}
		t.Events.Eventf(cell, nil, kind, condition.Reason, "Failover", "%s", condition.Message)
	}
	return nil
}

// conditionOf returns a copy of a condition; an empty one if there is none.
func conditionOf(cell *cellplanev1alpha1.Cell, kind string) metav1.Condition {
	if condition := meta.FindStatusCondition(cell.Status.Conditions, kind); condition != nil {
		return *condition
	}
	return metav1.Condition{}
}

// applyCondition writes a condition if the cell has the version that was read. The cell gets the version that was written.
func (t *Takeover) applyCondition(ctx context.Context, cell *cellplanev1alpha1.Cell, condition metav1.Condition) error {
	writer := "cellplane-failover-" + strings.ToLower(condition.Type)
	return cellstatus.ApplyTo(ctx, t.Client, cell, writer, cellstatus.Conditions{Conditions: []metav1.Condition{condition}})
}

// The reasons of the condition FailoverBlocked.
const (
	reasonBlocked   = "NotConfirmed"
	reasonUnblocked = "Decided"
)

// PublishBlocked publishes why a cell that does not answer is not failed over, in a condition and, when that begins, in an event.
func (t *Takeover) PublishBlocked(ctx context.Context, topology *slots.Map, verdict Verdict) error {
	for i := range topology.Cells() {
		name := topology.Cell(slots.Index(i)).Name
		cell := &cellplanev1alpha1.Cell{}
		if err := t.Client.Get(ctx, types.NamespacedName{Name: name}, cell); err != nil {
			if client.IgnoreNotFound(err) == nil {
				continue
			}
			return fmt.Errorf("reading cell %s: %w", name, err)
		}
		before := meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellFailoverBlocked)
		condition := metav1.Condition{Type: names.CellFailoverBlocked, Status: metav1.ConditionFalse, Reason: reasonUnblocked, Message: "The cell answers, or is failed over."}
		switch {
		case name == verdict.Blocked:
			condition = metav1.Condition{Type: names.CellFailoverBlocked, Status: metav1.ConditionTrue, Reason: reasonBlocked, Message: verdict.Why}
			if !before {
				t.Events.Eventf(cell, nil, corev1.EventTypeWarning, reasonBlocked, "Failover", "the cell is not failed over: %s", verdict.Why)
			}
		case !before:
			continue
		}
		if err := t.setCondition(ctx, cell, condition); err != nil {
			return err
		}
	}
	return nil
}

// maxNames is how many names a message lists.
const maxNames = 5

func someOf(all []string) string {
	if len(all) <= maxNames {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNames], ", "), len(all)-maxNames)
}
