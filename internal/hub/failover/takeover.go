package failover

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/slots"
)

// Takeover handles cells that fail and cells that return.
type Takeover struct {
	// Hub is the configuration of the hub's clients, and Client reads and writes the hub.
	Hub    *rest.Config
	Client client.Client
	// Fresh reads the hub uncached.
	Fresh client.Reader
	// Events records events about Cells.
	Events events.EventRecorder
	// Cells returns clients of the reachable cells.
	Cells func(ctx context.Context) map[string]client.Client
	// Fence returns the fence of a cell.
	Fence func(ctx context.Context, cell string) (*fence.Cell, error)
	// Open returns the connection to the store of a cell.
	Open func(ctx context.Context, cell string) (*cellstore.Store, error)
	// Term of the hub manager.
	Term cellstore.Term
	// Leases ends the writer leases of gateways before anything is promoted; nil if there are no gateways.
	Leases *WriterLeases
	// Copied waits until all backup cells of a cell have its store's content up to a revision; nil copies nothing.
	Copied func(ctx context.Context, cell string, revision int64) error
	// Stopped waits until nothing is copied from a failed cell any more; nil if nothing ever is.
	Stopped func(ctx context.Context, cell string) error
	// Follow has backups follow a topology; nil if nothing is ever copied.
	Follow func(*slots.Map)
	// StateDir is where snapshots and salvaged objects are saved.
	StateDir string
}

// The reasons of the conditions Fenced and Promoted, and of events.
const (
	reasonBegun      = "FailoverBegun"
	reasonFenced     = "IdentityRevoked"
	reasonUnfenced   = "MembersUnreachable"
	reasonReadmitted = "Emptied"
	reasonPromoted   = "BackupPromoted"
	reasonPartly     = "BackupsLost"
	reasonContested  = "BackupContested"
	reasonSalvaged   = "WritesSalvaged"
	reasonUndeleted  = "DeletionsLost"
)

// Do takes over the slots of a failed cell. It may be repeated.
//
// First, floors are raised at a majority of the voters. The cell is closed and its identity revoked meanwhile. When no gateway can hold a
// lease by an earlier topology any more, nothing is acknowledged that the cell stores; if its store can be reached, what the backup lacks
// is copied. Only then the copies are promoted.
func (t *Takeover) Do(ctx context.Context, topology *slots.Map, failed string) error {
	cell, err := t.begin(ctx, failed)
	if err != nil {
		return err
	}
	promoted := meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellPromoted)
	var ended time.Time
	if t.Leases != nil && !promoted {
		if ended, err = t.endLeases(ctx, topology); err != nil {
			return err
		}
	}
	if !meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellFenced) {
		t.closeCell(ctx, failed)
		unfenced, err := t.revoke(ctx, cell)
		if err != nil {
			return err
		}
		// An earlier attempt may have closed these members without waiting for the cells to know.
		if err := t.waitClosed(ctx, topology, unfenced, failed); err != nil {
			return err
		}
	}
	// Copies are promoted once. The others are outdated, and must not appear when a user deletes the newer object.
	if promoted {
		return nil
	}
	if err := waitUntil(ctx, ended); err != nil {
		return err
	}
	return t.promoteAll(ctx, topology, cell)
}

// Begin records that a cell has failed, before anybody acts on that. From then on the cell is taken over, or emptied when it returns. It may
// be repeated.
func (t *Takeover) Begin(ctx context.Context, failed string) error {
	_, err := t.begin(ctx, failed)
	return err
}

// begin is Begin, and returns the cell.
func (t *Takeover) begin(ctx context.Context, failed string) (*cellplanev1alpha1.Cell, error) {
	cell := &cellplanev1alpha1.Cell{}
	if err := t.Fresh.Get(ctx, types.NamespacedName{Name: failed}, cell); err != nil {
		return nil, fmt.Errorf("reading the failed cell %s: %w", failed, err)
	}
	if awaitsReturn(cell) {
		return cell, nil
	}
	// The promotion after an earlier failure is forgotten first: the next attempt could not tell which failure it was for.
	if err := t.forgetPromotion(ctx, cell); err != nil {
		return nil, err
	}
	return cell, t.setCondition(ctx, cell, metav1.Condition{
		Type: names.CellFenced, Status: metav1.ConditionFalse, Reason: reasonBegun, Message: "The cell has failed. It may still have its identity in members.",
	})
}

// promoteAll copies what the backup of a cell lacks, if its store answers, and promotes the copies. No gateway may write to the cell any
// more, and backups follow a topology in which it has failed.
func (t *Takeover) promoteAll(ctx context.Context, topology *slots.Map, cell *cellplanev1alpha1.Cell) error {
	if t.Copied != nil {
		if err := t.copyTail(ctx, cell.Name); err != nil {
			return err
		}
	}
	if err := t.stopCopying(ctx, cell.Name); err != nil {
		return err
	}
	return t.promoteOnce(ctx, topology, cell)
}

func (t *Takeover) stopCopying(ctx context.Context, failed string) error {
	if t.Stopped == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	return t.Stopped(ctx, failed)
}

// promoteOnce promotes the copies of a cell and records that in a condition.
func (t *Takeover) promoteOnce(ctx context.Context, topology *slots.Map, cell *cellplanev1alpha1.Cell) error {
	promoted, err := t.promote(ctx, topology, cell)
	if err != nil {
		return err
	}
	condition := metav1.Condition{Type: names.CellPromoted, Status: metav1.ConditionTrue, Reason: reasonPromoted, Message: "The objects of the cell were promoted in their backup cells."}
	if promoted.Uncovered > 0 {
		condition.Reason = reasonPartly
		condition.Message = fmt.Sprintf("No surviving cell has a complete copy of %d slots of the cell. What is missing is found when the cell returns.", promoted.Uncovered)
		t.Events.Eventf(cell, nil, corev1.EventTypeWarning, reasonPartly, "Failover", "no surviving cell has a complete copy of %d slots of the cell", promoted.Uncovered)
	}
	return t.setCondition(ctx, cell, condition)
}

// promote promotes the copies of a cell.
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
		t.Events.Eventf(cell, nil, corev1.EventTypeNormal, reasonPromoted, "Failover", "%d objects of the cell were promoted in other cells", promoted.Objects)
	}
	if len(promoted.Contested) > 0 {
		t.Events.Eventf(cell, nil, corev1.EventTypeWarning, reasonContested, "Failover", "%d copies were not promoted because other objects have their keys: %s",
			len(promoted.Contested), someOf(promoted.Contested))
	}
	return promoted, nil
}

// MakeUp revokes the identity of a failed cell in members that were unreachable before.
func (t *Takeover) MakeUp(ctx context.Context, failed string) error {
	cell := &cellplanev1alpha1.Cell{}
	if err := t.Fresh.Get(ctx, types.NamespacedName{Name: failed}, cell); err != nil {
		return client.IgnoreNotFound(err)
	}
	fenced := meta.FindStatusCondition(cell.Status.Conditions, names.CellFenced)
	if fenced == nil || fenced.Reason != reasonUnfenced {
		return nil // Do has not come to it
	}
	_, err := t.revoke(ctx, cell)
	return err
}

// closeTimeout bounds requests to a failed cell.
const closeTimeout = 3 * time.Second

// closeCell has a failed cell refuse all writes of gateways, if it still answers. The floor of the epoch is not enough: a change of an existing object
// carries the latest epoch that a gateway knows, also while it is sent to the former owner of the slot.
func (t *Takeover) closeCell(ctx context.Context, failed string) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	cell, err := t.Fence(ctx, failed)
	if err == nil {
		err = cell.Close(ctx, t.Term)
	}
	if err != nil {
		klog.FromContext(ctx).V(1).Info("closing the fence of a failed cell failed; no gateway routes to it", "cell", failed, "err", err.Error())
	}
}

// Hold has a failed cell that answers again refuse gateways with an older topology.
func (t *Takeover) Hold(ctx context.Context, topology *slots.Map, failed string) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	cell, err := t.Fence(ctx, failed)
	if err != nil {
		return
	}
	// If the cell is already returning, its floor is that of a later epoch and stays.
	if floor, err := cell.Floor(ctx); err != nil || floor >= topology.Epoch() {
		return
	}
	if err := cell.Raise(ctx, topology.Epoch()); err != nil {
		klog.FromContext(ctx).V(1).Info("raising the fence of a failed cell that answers again failed", "cell", failed, "err", err.Error())
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
