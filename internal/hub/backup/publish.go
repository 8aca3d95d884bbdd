package backup

import (
	"context"
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
	"github.com/cellplane/cellplane/internal/hub/cellstatus"
)

const (
	// publishInterval is how often the status is compared.
	publishInterval = 2 * time.Second
	// refreshInterval is how often a change of figures alone is written. Metrics have them at once.
	refreshInterval = 10 * time.Second
	// tolerableLag is the maximum age of a pending change, and of the last proof.
	tolerableLag = 10 * time.Second
)

// The reasons of the condition BackedUp.
const (
	reasonFollowing = "Following"
	reasonComparing = "Comparing"
	reasonBehind    = "Behind"
	reasonReplaced  = "StoreReplaced"
	reasonKeys      = "EncryptionKeys"
	reasonNoRoom    = "BackupCellFull"
	reasonFailed    = "CellFailed"
	// reasonSourceUnreadable and reasonBackupUnreadable are those of the status Unknown.
	reasonSourceUnreadable = "CellUnreadable"
	reasonBackupUnreadable = "BackupCellUnreadable"
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
		for name, state := range c.statesAndFailed() {
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
	wanted := statusOf(state, cell.Status.Backup)
	condition := conditionOf(state, now)
	condition.ObservedGeneration = cell.Generation
	conditions := append([]metav1.Condition(nil), cell.Status.Conditions...)
	changed := meta.SetStatusCondition(&conditions, condition)
	if !changed && (!refresh || (cell.Status.Backup != nil && cell.Status.Backup.UpToDateAt.Equal(wanted.UpToDateAt) && cell.Status.Backup.PendingKeys == wanted.PendingKeys)) {
		return false, nil
	}
	err := cellstatus.Apply(ctx, hub, &cell, "cellplane-backup", backupStatus{Backup: wanted, Conditions: cellstatus.Of(conditions, names.CellBackedUp)})
	return err == nil, err
}

// backupStatus is the part of a Cell's status that publish owns.
type backupStatus struct {
	Backup cellplanev1alpha1.CellBackup `json:"backup"`
	cellstatus.Conditions
}

// statusOf returns the figures. Until all backup cells have proved something, the former revision and time stay; of a cell that has failed, all
// figures do.
func statusOf(state State, before *cellplanev1alpha1.CellBackup) cellplanev1alpha1.CellBackup {
	status := ptr.Deref(before, cellplanev1alpha1.CellBackup{})
	if state.Failed {
		return status
	}
	if !state.Complete || state.Proven.IsZero() {
		status.PendingKeys = int64(state.Pending)
		return status
	}
	return cellplanev1alpha1.CellBackup{UpToDateAt: &metav1.Time{Time: state.Proven.Truncate(time.Second)}, Revision: state.Revision, PendingKeys: int64(state.Pending)}
}

func sinceText(since time.Time) string { return since.UTC().Format(time.RFC3339) }

// conditionOf returns the condition for the state of a backup. Its message contains no figures, so that it changes
// rarely.
func conditionOf(state State, now time.Time) metav1.Condition {
	condition := metav1.Condition{Type: names.CellBackedUp, Status: metav1.ConditionFalse}
	switch {
	case state.Failed:
		condition.Reason = reasonFailed
		condition.Message = "The cell has failed, and others hold its share; its backup begins again when it joins again."
	case state.Replaced:
		condition.Reason = reasonReplaced
		condition.Message = "The store of the cell is empty, or older than its backup, which is kept as it is; fail the cell over to restore what it had."
	case state.Problem != (problem{}) && state.ProblemIn != "":
		condition.Reason, condition.Message = state.Problem.reason, fmt.Sprintf("Nothing is copied to the backup cell %s: %s.", state.ProblemIn, state.Problem.text)
	case state.Problem != (problem{}):
		condition.Reason, condition.Message = state.Problem.reason, "Nothing is copied: "+state.Problem.text+"."
	case !state.Unread.IsZero():
		condition.Status, condition.Reason = metav1.ConditionUnknown, reasonSourceUnreadable
		condition.Message = fmt.Sprintf("The store of the cell cannot be read since %s; what is written to it is not copied.", sinceText(state.Unread))
	case len(state.Silent) > 0:
		condition.Status, condition.Reason = metav1.ConditionUnknown, reasonBackupUnreadable
		condition.Message = fmt.Sprintf("The store of the backup cell %s does not answer since %s; nothing is copied there.", strings.Join(state.Silent, ", "), sinceText(state.SilentSince))
	case state.Alone:
		condition.Reason = names.ReasonNoBackupCell
		condition.Message = "There is no other cell that could keep a backup; the loss of this one loses everything."
	case !state.Complete && len(state.Waiting) == 0:
		condition.Reason = reasonComparing
		condition.Message = "The cell has not been compared with its backup yet."
	case !state.Complete:
		condition.Reason = reasonComparing
		condition.Message = fmt.Sprintf("The cell is being compared with its backup in %s.", strings.Join(state.Waiting, ", "))
	case state.Proven.IsZero():
		condition.Reason = reasonComparing
		condition.Message = "The backup has been compared, and has not been proved complete yet."
	case (!state.Oldest.IsZero() && now.Sub(state.Oldest) > tolerableLag) || now.Sub(state.Proven) > tolerableLag:
		condition.Reason = reasonBehind
		condition.Message = fmt.Sprintf("Changes made more than %s ago have not been copied yet.", tolerableLag)
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, reasonFollowing, "Every change is copied when it is made."
	}
	return condition
}
