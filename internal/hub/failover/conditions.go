package failover

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/slots"
)

// setCondition writes one condition. Other writers own the others.
func (t *Takeover) setCondition(ctx context.Context, cell *cellplanev1alpha1.Cell, condition metav1.Condition) error {
	condition.ObservedGeneration = cell.Generation
	if !meta.SetStatusCondition(&cell.Status.Conditions, condition) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": cellplanev1alpha1.GroupVersion.String(), "kind": "Cell",
		"metadata": map[string]any{"name": cell.Name, "uid": cell.UID},
		"status":   map[string]any{"conditions": []metav1.Condition{*meta.FindStatusCondition(cell.Status.Conditions, condition.Type)}},
	})
	if err != nil {
		return err
	}
	target := &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: cell.Name}}
	err = t.Client.Status().Patch(ctx, target, client.RawPatch(types.ApplyPatchType, patch), &client.SubResourcePatchOptions{
		PatchOptions: client.PatchOptions{FieldManager: "cellplane-failover-" + strings.ToLower(condition.Type), Force: ptr.To(true)},
	})
	if err != nil {
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
