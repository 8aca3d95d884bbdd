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

// maxNames is how many names a message lists.
const maxNames = 5

func someOf(all []string) string {
	if len(all) <= maxNames {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNames], ", "), len(all)-maxNames)
}
