package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

const (
	// publishInterval is how often the status is compared.
	publishInterval = 2 * time.Second
	// refreshInterval is how often a change of figures alone is written. Metrics have them at once.
	refreshInterval = 10 * time.Second
	// tolerableLag is the maximum age of a pending change.
	tolerableLag = 10 * time.Second
)

// The reasons of the condition BackedUp.
const (
	reasonFollowing = "Following"
	reasonComparing = "Comparing"
	reasonBehind    = "Behind"
)

// Publish writes the states of the backups into the status of the Cells, until the context ends.
func (c *Controller) Publish(ctx context.Context, hub client.Client) error {
	ticker := time.NewTicker(publishInterval)
	defer ticker.Stop()
	written := map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for name, state := range c.States() {
			now := time.Now()
			wrote, err := publish(ctx, hub, name, state, now, now.Sub(written[name]) >= refreshInterval)
			if err != nil {
				klog.FromContext(ctx).V(1).Info("publishing the state of a backup failed", "cell", name, "err", err.Error())
			}
			if wrote {
				written[name] = now
			}
		}
	}
}

// publish writes the state of a backup if it has changed, and reports whether it did.
func publish(ctx context.Context, hub client.Client, name string, state State, now time.Time, refresh bool) (bool, error) {
	var cell cellplanev1alpha1.Cell
	if err := hub.Get(ctx, types.NamespacedName{Name: name}, &cell); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	wanted := statusOf(state, cell.Status.Backup, now)
	condition := conditionOf(state, now)
	condition.ObservedGeneration = cell.Generation
	conditions := append([]metav1.Condition(nil), cell.Status.Conditions...)
	changed := meta.SetStatusCondition(&conditions, condition)
	if !changed && (!refresh || (cell.Status.Backup != nil && cell.Status.Backup.Revision == wanted.Revision && cell.Status.Backup.PendingKeys == wanted.PendingKeys)) {
		return false, nil
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": cellplanev1alpha1.GroupVersion.String(),
		"kind":       "Cell",
		"metadata":   map[string]any{"name": name},
		"status":     map[string]any{"backup": wanted, "conditions": []metav1.Condition{*meta.FindStatusCondition(conditions, names.CellBackedUp)}},
	})
	if err != nil {
		return false, err
	}
	target := &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: name, UID: cell.UID}}
	err = hub.Status().Patch(ctx, target, client.RawPatch(types.ApplyPatchType, patch), &client.SubResourcePatchOptions{
		PatchOptions: client.PatchOptions{FieldManager: "cellplane-backup", Force: ptr.To(true)},
	})
	return err == nil, client.IgnoreNotFound(err)
}

// statusOf returns the figures. Until all backup cells have been compared, the former revision and time stay.
func statusOf(state State, before *cellplanev1alpha1.CellBackup, now time.Time) cellplanev1alpha1.CellBackup {
	if !state.Complete {
		status := ptr.Deref(before, cellplanev1alpha1.CellBackup{})
		status.PendingKeys = int64(state.Pending)
		return status
	}
	upToDate := now
	if !state.Oldest.IsZero() {
		upToDate = state.Oldest
	}
	return cellplanev1alpha1.CellBackup{UpToDateAt: &metav1.Time{Time: upToDate}, Revision: state.Revision, PendingKeys: int64(state.Pending)}
}

// conditionOf returns the condition for the state of a backup. Its message contains no figures, so that it changes
// rarely.
func conditionOf(state State, now time.Time) metav1.Condition {
	condition := metav1.Condition{Type: names.CellBackedUp, Status: metav1.ConditionFalse}
	switch {
	case !state.Complete && len(state.Waiting) == 0:
		condition.Reason = reasonComparing
		condition.Message = "The cell has not been compared with its backup yet."
	case !state.Complete:
		condition.Reason = reasonComparing
		condition.Message = fmt.Sprintf("The cell is being compared with its backup in %s.", strings.Join(state.Waiting, ", "))
	case !state.Oldest.IsZero() && now.Sub(state.Oldest) > tolerableLag:
		condition.Reason = reasonBehind
		condition.Message = fmt.Sprintf("Changes made more than %s ago have not been copied yet.", tolerableLag)
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, reasonFollowing, "Every change is copied when it is made."
	}
	return condition
}
