package failover

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/slots"
)

// revoke revokes the cell's identity in all members, and returns those where that failed. These are closed for all
// engines.
func (t *Takeover) revoke(ctx context.Context, cell *cellplanev1alpha1.Cell) (unfenced []string, err error) {
	var members clusterv1alpha1.ClusterList
	if err := t.Fresh.List(ctx, &members); err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	var all []string
	for i := range members.Items {
		if members.Items[i].Spec.SyncMode != clusterv1alpha1.Pull { // cells have no identity in a member with an agent
			all = append(all, members.Items[i].Name)
		}
	}
	if err := t.revokeAtHub(ctx, cell.Name); err != nil {
		return nil, err
	}
	unfenced = revokeAll(ctx, t.Hub, cell.Name, all)
	// The Clusters may have changed meanwhile because of other cells.
	if err := t.Fresh.List(ctx, &members); err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	for i := range members.Items {
		if err := t.close(ctx, &members.Items[i], cell.Name, slices.Contains(unfenced, members.Items[i].Name)); err != nil {
			return nil, fmt.Errorf("changing which cells keep cluster %s closed: %w", members.Items[i].Name, err)
		}
	}
	condition := metav1.Condition{Type: names.CellFenced, Status: metav1.ConditionTrue, Reason: reasonFenced, Message: "The cell has no identity in any member."}
	if len(unfenced) > 0 {
		condition = metav1.Condition{
			Type: names.CellFenced, Status: metav1.ConditionFalse, Reason: reasonUnfenced,
			Message: fmt.Sprintf("The cell may still have an identity in %s, which cannot be reached. Nothing is written there until it is revoked.", someOf(unfenced)),
		}
	}
	return unfenced, t.setCondition(ctx, cell, condition)
}

// close forbids or allows engines to write to a member, because of a cell that still has, or no longer has, an
// identity there. Concurrent changes because of other cells are kept.
func (t *Takeover) close(ctx context.Context, member *clusterv1alpha1.Cluster, cell string, closed bool) error {
	for {
		err := t.tryClose(ctx, member, cell, closed)
		if !apierrors.IsConflict(err) {
			return client.IgnoreNotFound(err)
		}
		if err := t.Fresh.Get(ctx, client.ObjectKeyFromObject(member), member); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
}

func (t *Takeover) tryClose(ctx context.Context, member *clusterv1alpha1.Cluster, cell string, closed bool) error {
	unfenced := splitNames(member.Annotations[names.UnfencedCellsAnnotation])
	if slices.Contains(unfenced, cell) == closed {
		return nil
	}
	if closed {
		unfenced = append(unfenced, cell)
	} else {
		unfenced = slices.DeleteFunc(unfenced, func(name string) bool { return name == cell })
	}
	var value any // null removes it
	if len(unfenced) > 0 {
		value = strings.Join(unfenced, ",")
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": member.ResourceVersion,
		"annotations":     map[string]any{names.UnfencedCellsAnnotation: value},
	}})
	if err != nil {
		return err
	}
	return t.Client.Patch(ctx, member, client.RawPatch(types.MergePatchType, patch))
}

// OpenMembers opens members that are closed because of cells that are no longer failed cells of the topology: a cell that has returned may have an
// identity there, and that of one that was removed is revoked.
func (t *Takeover) OpenMembers(ctx context.Context, topology *slots.Map) error {
	var members clusterv1alpha1.ClusterList
	if err := t.Client.List(ctx, &members); err != nil {
		return fmt.Errorf("listing clusters: %w", err)
	}
	for i := range members.Items {
		for _, cell := range splitNames(members.Items[i].Annotations[names.UnfencedCellsAnnotation]) {
			at, listed := topology.Index(cell)
			if listed && topology.Cell(at).State == slots.Failed {
				continue
			}
			if err := t.openFor(ctx, &members.Items[i], cell, listed); err != nil {
				return fmt.Errorf("opening cluster %s, which is closed because of cell %s: %w", members.Items[i].Name, cell, err)
			}
		}
	}
	return nil
}

// openFor opens a member that is closed because of a cell that has returned, or was removed and has no identity there any more.
func (t *Takeover) openFor(ctx context.Context, member *clusterv1alpha1.Cluster, name string, listed bool) error {
	cell := &cellplanev1alpha1.Cell{}
	err := t.Fresh.Get(ctx, types.NamespacedName{Name: name}, cell)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil && awaitsReturn(cell) {
		if listed {
			return nil // it is about to be readmitted
		}
		return t.MakeUp(ctx, name)
	}
	// The identity of a Cell that does not exist any more, or was created anew, is nobody's.
	if member.Spec.SyncMode != clusterv1alpha1.Pull && (err != nil || !isReadmitted(cell)) {
		if err := revoke(ctx, t.Hub, name, member.Name); err != nil {
			klog.FromContext(ctx).V(1).Info("revoking the identity of a cell in a member failed", "cell", name, "cluster", member.Name, "err", err.Error())
			return nil
		}
	}
	return t.close(ctx, member, name, false)
}

// closedTimeout is how long the copies of Clusters may take to reach a cell. They take milliseconds.
const closedTimeout = 30 * time.Second

// waitClosed waits until every cell knows that members are closed. A cell that does not have a Cluster does not write
// there.
func (t *Takeover) waitClosed(ctx context.Context, topology *slots.Map, members []string, cell string) error {
	if len(members) == 0 {
		return nil
	}
	for name, reader := range t.Cells(ctx) {
		if i, listed := topology.Index(name); !listed || topology.Cell(i).State == slots.Failed {
			continue
		}
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, closedTimeout, true, func(ctx context.Context) (bool, error) {
			var known clusterv1alpha1.ClusterList
			if err := reader.List(ctx, &known); err != nil {
				return false, nil //nolint:nilerr // retried until the timeout
			}
			return !slices.ContainsFunc(known.Items, func(member clusterv1alpha1.Cluster) bool {
				return slices.Contains(members, member.Name) && !slices.Contains(splitNames(member.Annotations[names.UnfencedCellsAnnotation]), cell)
			}), nil
		})
		if err != nil {
			return fmt.Errorf("waiting until cell %s knows that %s is closed: %w", name, someOf(members), err)
		}
	}
	return nil
}

func splitNames(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
