package failover

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/slots"
)

// Takeover does what a failed cell, or one that returns, asks of the hub manager.
type Takeover struct {
	// Hub leads to the hub, and Client reads and writes it.
	Hub    *rest.Config
	Client client.Client
	// Fresh reads the hub uncached.
	Fresh client.Reader
	// Events are about Cells.
	Events events.EventRecorder
	// Cells returns clients for the cells that can be reached.
	Cells func(ctx context.Context) map[string]client.Client
	// Fence returns the fence of a cell.
	Fence func(ctx context.Context, cell string) (*fence.Cell, error)
	// Open returns the connection to the store of a cell.
	Open func(ctx context.Context, cell string) (*cellstore.Store, error)
	// Term is that of the hub manager.
	Term cellstore.Term
	// StateDir is where snapshots and salvaged objects are kept.
	StateDir string
}

// The reasons of the conditions Fenced and Promoted, and of events.
const (
	reasonFenced     = "IdentityRevoked"
	reasonUnfenced   = "MembersUnreachable"
	reasonReadmitted = "Emptied"
	reasonPromoted   = "BackupPromoted"
	reasonPartly     = "BackupsLost"
	reasonContested  = "BackupContested"
	reasonSalvaged   = "WritesSalvaged"
)

// Do takes the share of a failed cell over. It may be repeated, and does little if everything has been done.
func (t *Takeover) Do(ctx context.Context, topology *slots.Map, failed string) error {
	cell := &cellplanev1alpha1.Cell{}
	if err := t.Fresh.Get(ctx, types.NamespacedName{Name: failed}, cell); err != nil {
		return fmt.Errorf("reading the failed cell %s: %w", failed, err)
	}
	if isReadmitted(cell) {
		if err := t.forgetPromotion(ctx, cell); err != nil {
			return err
		}
	}
	if !meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellFenced) {
		t.closeCell(ctx, failed)
		unfenced, err := t.revoke(ctx, cell)
		if err != nil {
			return err
		}
		// An earlier attempt may have closed these members and not have seen it known.
		if err := t.waitClosed(ctx, topology, unfenced, failed); err != nil {
			return err
		}
	}
	// Copies come to life once. What stays a copy is old, and must not appear when a user deletes what is newer.
	if meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellPromoted) {
		return nil
	}
	return t.promoteOnce(ctx, topology, cell)
}

// isReadmitted reports whether the last thing that is known of a cell is that it has returned.
func isReadmitted(cell *cellplanev1alpha1.Cell) bool {
	fenced := meta.FindStatusCondition(cell.Status.Conditions, names.CellFenced)
	return fenced != nil && fenced.Reason == reasonReadmitted
}

// forgetPromotion says that the copies of a cell that has returned are yet to come to life, should it fail again.
func (t *Takeover) forgetPromotion(ctx context.Context, cell *cellplanev1alpha1.Cell) error {
	if !meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellPromoted) {
		return nil
	}
	return t.setCondition(ctx, cell, metav1.Condition{
		Type: names.CellPromoted, Status: metav1.ConditionFalse, Reason: reasonReadmitted, Message: "The cell has returned since its share was taken over.",
	})
}

// promoteOnce brings the copies of a cell to life, and remembers that.
func (t *Takeover) promoteOnce(ctx context.Context, topology *slots.Map, cell *cellplanev1alpha1.Cell) error {
	promoted, err := t.promote(ctx, topology, cell)
	if err != nil {
		return err
	}
	condition := metav1.Condition{Type: names.CellPromoted, Status: metav1.ConditionTrue, Reason: reasonPromoted, Message: "The objects of the cell live on in the cells that kept their copies."}
	if promoted.Uncovered > 0 {
		condition.Reason = reasonPartly
		condition.Message = fmt.Sprintf("Nobody who is left had a complete copy of %d slots of the cell. What is missing is found when the cell returns.", promoted.Uncovered)
		t.Events.Eventf(cell, nil, corev1.EventTypeWarning, reasonPartly, "Failover", "nobody who is left had a complete copy of %d slots of the cell", promoted.Uncovered)
	}
	return t.setCondition(ctx, cell, condition)
}

// promote brings the copies of a cell to life.
func (t *Takeover) promote(ctx context.Context, topology *slots.Map, cell *cellplanev1alpha1.Cell) (Promoted, error) {
	stores, err := t.stores(ctx, topology)
	if err != nil {
		return Promoted{}, err
	}
	began := time.Now()
	promotion := Promotion{Topology: topology, Failed: cell.Name, Stores: stores, Term: t.Term}
	promoted, err := promotion.Run(ctx)
	promotedObjects.WithLabelValues(cell.Name).Add(float64(promoted.Objects))
	if err != nil {
		return promoted, err
	}
	if promoted.Objects > 0 {
		promotionSeconds.Observe(time.Since(began).Seconds())
		t.Events.Eventf(cell, nil, corev1.EventTypeNormal, reasonPromoted, "Failover", "%d objects of the cell live on in other cells", promoted.Objects)
	}
	if len(promoted.Contested) > 0 {
		t.Events.Eventf(cell, nil, corev1.EventTypeWarning, reasonContested, "Failover", "%d copies stay copies, as their places are taken: %s",
			len(promoted.Contested), someOf(promoted.Contested))
	}
	return promoted, nil
}

// MakeUp takes the identity of a failed cell away in members that could not be reached before.
func (t *Takeover) MakeUp(ctx context.Context, failed string) error {
	cell := &cellplanev1alpha1.Cell{}
	if err := t.Fresh.Get(ctx, types.NamespacedName{Name: failed}, cell); err != nil {
		return client.IgnoreNotFound(err)
	}
	fenced := meta.FindStatusCondition(cell.Status.Conditions, names.CellFenced)
	if fenced == nil || fenced.Status == metav1.ConditionTrue || isReadmitted(cell) {
		return nil // it is for Do to begin
	}
	_, err := t.revoke(ctx, cell)
	return err
}

// closeTimeout is how long a failed cell that may still answer is waited for.
const closeTimeout = 3 * time.Second

// closeCell has a failed cell refuse all writes of gateways, should it still answer.
func (t *Takeover) closeCell(ctx context.Context, failed string) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	cell, err := t.Fence(ctx, failed)
	if err == nil {
		err = cell.Raise(ctx, fence.Closed)
	}
	if err != nil {
		klog.FromContext(ctx).V(1).Info("A failed cell cannot be told that it is; nobody routes to it any more", "cell", failed, "reason", err.Error())
	}
}

// Hold has a failed cell that answers again refuse gateways that do not know yet that it has failed.
func (t *Takeover) Hold(ctx context.Context, topology *slots.Map, failed string) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	cell, err := t.Fence(ctx, failed)
	if err != nil {
		return
	}
	// Should the cell be coming back already, its floor is that of a later epoch and stays.
	if floor, err := cell.Floor(ctx); err != nil || floor >= topology.Epoch() {
		return
	}
	if err := cell.Raise(ctx, topology.Epoch()); err != nil {
		klog.FromContext(ctx).V(1).Info("A failed cell that answers again cannot be closed yet", "cell", failed, "reason", err.Error())
	}
}

// revoke takes the cell's identity away in all members, and returns those where that fails. They are closed for all engines.
func (t *Takeover) revoke(ctx context.Context, cell *cellplanev1alpha1.Cell) (unfenced []string, err error) {
	var members clusterv1alpha1.ClusterList
	if err := t.Fresh.List(ctx, &members); err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	all := make([]string, len(members.Items))
	for i := range members.Items {
		all[i] = members.Items[i].Name
	}
	unfenced = revokeAll(ctx, t.Hub, cell.Name, all)
	// That took its time, and others have written because of other cells.
	if err := t.Fresh.List(ctx, &members); err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	for i := range members.Items {
		if err := t.close(ctx, &members.Items[i], cell.Name, slices.Contains(unfenced, members.Items[i].Name)); err != nil {
			return nil, fmt.Errorf("closing cluster %s, or opening it: %w", members.Items[i].Name, err)
		}
	}
	condition := metav1.Condition{Type: names.CellFenced, Status: metav1.ConditionTrue, Reason: reasonFenced, Message: "The cell has no identity in any member."}
	if len(unfenced) > 0 {
		condition = metav1.Condition{
			Type: names.CellFenced, Status: metav1.ConditionFalse, Reason: reasonUnfenced,
			Message: fmt.Sprintf("The cell may still have an identity in %s, which cannot be reached; nothing is written there until it is taken away.", someOf(unfenced)),
		}
	}
	return unfenced, t.setCondition(ctx, cell, condition)
}

// close forbids, or allows again, that engines write to a member because of a cell that was not fenced there. What others write because
// of other cells at the same time stays.
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

// closedWait is how long the copies of Clusters may take to reach a cell. They take milliseconds.
const closedWait = 30 * time.Second

// waitClosed waits until every cell knows that members are closed. One that does not have a member does not write there.
func (t *Takeover) waitClosed(ctx context.Context, topology *slots.Map, members []string, cell string) error {
	if len(members) == 0 {
		return nil
	}
	for name, reader := range t.Cells(ctx) {
		if i, listed := topology.Index(name); !listed || topology.Cell(i).State == slots.Failed {
			continue
		}
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, closedWait, true, func(ctx context.Context) (bool, error) {
			var known clusterv1alpha1.ClusterList
			if err := reader.List(ctx, &known); err != nil {
				return false, nil //nolint:nilerr // the cell may be back in a moment
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

// Readmit prepares a cell for joining again, if it had failed before: it is emptied, and what only it had is kept.
func (t *Takeover) Readmit(ctx context.Context, topology *slots.Map, name string) error {
	cell := &cellplanev1alpha1.Cell{}
	if err := t.Fresh.Get(ctx, types.NamespacedName{Name: name}, cell); err != nil {
		return fmt.Errorf("reading the returning cell %s: %w", name, err)
	}
	if meta.FindStatusCondition(cell.Status.Conditions, names.CellFenced) == nil {
		return nil // it has never failed
	}
	if isReadmitted(cell) {
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
		// It was called back before its share had been taken over. What is not taken over now would be gone.
		failed, err := withState(topology, name, slots.Failed)
		if err != nil {
			return err
		}
		if err := t.promoteOnce(ctx, failed, cell); err != nil {
			return err
		}
	}
	emptying := Emptying{Topology: topology, Returning: returning, Stores: stores, Term: t.Term, Dir: t.StateDir, Now: time.Now()}
	emptied, err := emptying.Run(ctx)
	t.tell(ctx, cell, emptied) // also if it was not done: the next attempt may find nothing more
	if err != nil {
		return err
	}
	closed, err := t.Fence(ctx, name)
	if err == nil {
		err = closed.Reopen(ctx, topology.Epoch())
	}
	if err != nil {
		return err
	}
	message := "The cell is empty."
	if emptied.Snapshot != "" {
		message = fmt.Sprintf("%d objects were removed; the snapshot %s has them, %d had not reached the backup.", emptied.Removed, emptied.Snapshot, len(emptied.Salvaged))
	}
	return t.readmitted(ctx, cell, message)
}

// readmitted says that a cell has returned. It does so in this order: one that is fenced and not promoted would be taken for one whose
// share is still to be taken over, and the copies that have stayed copies are old.
func (t *Takeover) readmitted(ctx context.Context, cell *cellplanev1alpha1.Cell, message string) error {
	if err := t.setCondition(ctx, cell, metav1.Condition{Type: names.CellFenced, Status: metav1.ConditionFalse, Reason: reasonReadmitted, Message: message}); err != nil {
		return err
	}
	return t.forgetPromotion(ctx, cell)
}

// tell says what was found in a cell that returns and nobody else has.
func (t *Takeover) tell(ctx context.Context, cell *cellplanev1alpha1.Cell, emptied Emptied) {
	if len(emptied.Salvaged) == 0 {
		return
	}
	t.Events.Eventf(cell, nil, corev1.EventTypeWarning, reasonSalvaged, "Rejoin", "%d objects had not reached the backup when the cell was given up; they are kept as %s",
		len(emptied.Salvaged), someOf(emptied.Salvaged))
	for _, file := range emptied.Salvaged {
		klog.FromContext(ctx).Info("Kept what had not reached the backup", "cell", cell.Name, "file", file)
	}
}

// stores returns the connections to all cells that have not failed.
func (t *Takeover) stores(ctx context.Context, topology *slots.Map) (map[string]*cellstore.Store, error) {
	stores := map[string]*cellstore.Store{}
	for i := range topology.Cells() {
		cell := topology.Cell(slots.Index(i))
		if cell.State == slots.Failed {
			continue
		}
		store, err := t.Open(ctx, cell.Name)
		if err != nil {
			return nil, err
		}
		stores[cell.Name] = store
	}
	return stores, nil
}

// setCondition writes one condition. Others belong to others, who write theirs at the same time.
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
	if condition.Type == names.CellFenced { // promotions tell more than their condition does
		kind := corev1.EventTypeNormal
		if condition.Reason == reasonUnfenced {
			kind = corev1.EventTypeWarning
		}
		t.Events.Eventf(cell, nil, kind, condition.Reason, "Failover", "%s", condition.Message)
	}
	return nil
}

func splitNames(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// mentioned is how many names a message lists.
const mentioned = 5

func someOf(all []string) string {
	if len(all) <= mentioned {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:mentioned], ", "), len(all)-mentioned)
}
