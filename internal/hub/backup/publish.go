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
	// publishInterval is how often it is looked whether there is something new to say.
	publishInterval = 2 * time.Second
	// refreshInterval is how often figures alone are worth a write. Metrics tell them at once.
	refreshInterval = 10 * time.Second
	// tolerableLag is how old a change may be that waits for its copy.
	tolerableLag = 10 * time.Second
)

// The reasons of the condition BackedUp.
const (
	reasonFollowing = "Following"
	reasonComparing = "Comparing"
	reasonBehind    = "Behind"
)

// Publish writes how far the backups are into the status of the Cells, until the context ends.
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
		for name, standing := range c.Standings() {
			now := time.Now()
			wrote, err := publish(ctx, hub, name, standing, now, now.Sub(written[name]) >= refreshInterval)
			if err != nil {
				klog.FromContext(ctx).V(1).Info("The state of a backup cannot be published", "cell", name, "reason", err.Error())
			}
			if wrote {
				written[name] = now
			}
		}
	}
}

// publish writes the state of a backup if there is something to say, and reports whether it did.
func publish(ctx context.Context, hub client.Client, name string, standing Standing, now time.Time, refresh bool) (bool, error) {
	var cell cellplanev1alpha1.Cell
	if err := hub.Get(ctx, types.NamespacedName{Name: name}, &cell); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	wanted := statusOf(standing, cell.Status.Backup, now)
	condition := conditionOf(standing, now)
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

// statusOf returns the figures. As long as a keeper has not been compared, what is backed up is what was before.
func statusOf(standing Standing, before *cellplanev1alpha1.CellBackup, now time.Time) cellplanev1alpha1.CellBackup {
	if !standing.Complete {
		status := ptr.Deref(before, cellplanev1alpha1.CellBackup{})
		status.PendingKeys = int64(standing.Pending)
		return status
	}
	upToDate := now
	if !standing.Oldest.IsZero() {
		upToDate = standing.Oldest
	}
	return cellplanev1alpha1.CellBackup{UpToDateAt: &metav1.Time{Time: upToDate}, Revision: standing.Revision, PendingKeys: int64(standing.Pending)}
}

// conditionOf puts the state of a backup into words that stay the same as long as the state does.
func conditionOf(standing Standing, now time.Time) metav1.Condition {
	condition := metav1.Condition{Type: names.CellBackedUp, Status: metav1.ConditionFalse}
	switch {
	case !standing.Complete && len(standing.Waiting) == 0:
		condition.Reason = reasonComparing
		condition.Message = "The cell has not been compared with its backup yet."
	case !standing.Complete:
		condition.Reason = reasonComparing
		condition.Message = fmt.Sprintf("The cell is being compared with its backup in %s.", strings.Join(standing.Waiting, ", "))
	case !standing.Oldest.IsZero() && now.Sub(standing.Oldest) > tolerableLag:
		condition.Reason = reasonBehind
		condition.Message = fmt.Sprintf("Changes of more than %s ago wait for their copies.", tolerableLag)
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, reasonFollowing, "Every change is copied as it comes."
	}
	return condition
}
