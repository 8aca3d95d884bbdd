package rebalance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/membership"
	"github.com/cellplane/cellplane/internal/slots"
)

// change is the work of one epoch.
type change struct {
	*Controller
	topology *cellplanev1alpha1.CellTopology
	compiled *slots.Map
	// cells are the connections to all cells that have not failed, by name.
	cells map[string]*connection
}

// running reports whether a change is under way.
func (c *change) running() bool {
	return slices.ContainsFunc(c.topology.Spec.Cells, func(cell cellplanev1alpha1.TopologyCell) bool {
		return cell.State == cellplanev1alpha1.CellStateIn || cell.State == cellplanev1alpha1.CellStateOut || cell.TargetWeight != nil
	})
}

// in returns the names of the cells in a state.
func (c *change) in(state cellplanev1alpha1.CellState) []string {
	var found []string
	for _, cell := range c.topology.Spec.Cells {
		if cell.State == state {
			found = append(found, cell.Name)
		}
	}
	return found
}

// connect reaches all cells and raises the term in their stores.
func (c *change) connect(ctx context.Context) error {
	c.cells = map[string]*connection{}
	for _, cell := range c.topology.Spec.Cells {
		if cell.State == cellplanev1alpha1.CellStateFailed {
			continue
		}
		connection, err := c.Cells.to(ctx, cell.Name)
		if err != nil {
			return err
		}
		c.cells[cell.Name] = connection
	}
	return c.everywhere(ctx, func(ctx context.Context, _ string, connection *connection) error {
		return connection.store.RaiseTerm(ctx, c.Term)
	})
}

// reachWithin bounds what one cell may take for a simple request.
const reachWithin = 10 * time.Second

// everywhere does something in all cells at once. A cell that does not answer is named.
func (c *change) everywhere(ctx context.Context, do func(context.Context, string, *connection) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for name, connection := range c.cells {
		group.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, reachWithin)
			defer cancel()
			err := do(limited, name, connection)
			if err != nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("cell %s does not answer; bring it back, or declare it failed: %w", name, err)
			}
			return err
		})
	}
	return group.Wait()
}

// fence has all cells refuse the former epoch, and prepares those that get objects.
func (c *change) fence(ctx context.Context) error {
	if c.fenced() {
		return nil // by whoever did this before
	}
	status := c.status()
	if c.running() {
		status.Phase = cellplanev1alpha1.TopologyFencing
		status.Change = &cellplanev1alpha1.TopologyChange{Epoch: c.topology.Generation, StartedAt: now()}
		setSettled(status, c.topology.Generation, metav1.ConditionFalse, "Fencing", "cells are being told to refuse the former epoch")
	} else if len(c.in(cellplanev1alpha1.CellStateFailed)) > 0 {
		status.Phase = cellplanev1alpha1.TopologyPromoting
		status.Change = nil
	}
	// What a cell that returns still has goes before watches begin to read it.
	if err := c.admit(ctx); err != nil {
		return err
	}
	c.follow()
	if err := c.carry(ctx, status); err != nil {
		return err
	}
	status.Cells = c.holdings()
	status.ObservedGeneration = c.topology.Generation
	if err := c.publish(ctx, status); err != nil {
		return err
	}
	if c.running() {
		if err := c.prepareTargets(ctx); err != nil {
			return err
		}
	}
	if err := c.everywhere(ctx, func(ctx context.Context, _ string, connection *connection) error {
		return connection.fence.Raise(ctx, c.topology.Generation)
	}); err != nil {
		return err
	}
	for _, failed := range c.in(cellplanev1alpha1.CellStateFailed) {
		if c.Takeover == nil {
			break
		}
		if err := c.Takeover(ctx, c.compiled, failed); err != nil {
			return err
		}
	}
	// Until here, what objects have left behind may have been the last there was of them.
	if c.running() {
		if err := c.clearTargets(ctx); err != nil {
			return err
		}
	}
	status = c.status()
	status.FencedEpoch = c.topology.Generation
	return c.publish(ctx, status)
}

// carry says how positions of the epoch before are carried into this one.
func (c *change) carry(ctx context.Context, status *cellplanev1alpha1.CellTopologyStatus) error {
	before, epoch := c.topology.Status, c.topology.Generation
	if before.ObservedGeneration == epoch {
		return nil // it has been said
	}
	status.Epochs = slices.DeleteFunc(status.Epochs, func(e cellplanev1alpha1.TopologyEpoch) bool { return e.Epoch > epoch })
	if i := len(status.Epochs) - 1; i >= 0 && status.Epochs[i].Epoch == epoch {
		if before.Phase == cellplanev1alpha1.TopologyMoved && before.Change != nil && before.Change.Epoch == epoch-1 && !c.running() && len(c.lost()) == 0 {
			return nil // the end of a change, which has said it before
		}
		status.Epochs = status.Epochs[:i]
	}
	if before.ObservedGeneration == 0 || len(c.lost()) > 0 {
		status.Epochs = nil // what was before is not known, or is lost
		return nil
	}
	// Epochs that were passed over have never been in force.
	entry := cellplanev1alpha1.TopologyEpoch{Epoch: epoch, From: c.unused(status)}
	for _, cell := range c.topology.Spec.Cells {
		known := slices.ContainsFunc(before.Cells, func(known cellplanev1alpha1.CellSlots) bool {
			return known.Name == cell.Name && known.Slots+known.TargetSlots > 0 // one that had failed begins anew
		})
		if known || c.cells[cell.Name] == nil {
			continue
		}
		revision, err := c.cells[cell.Name].store.Revision(ctx)
		if err != nil {
			return err
		}
		if entry.From == nil {
			entry.From = map[string]int64{}
		}
		entry.From[cell.Name] = revision
	}
	status.Epochs = append(status.Epochs, entry)
	if extra := len(status.Epochs) - keptEpochs; extra > 0 {
		status.Epochs = status.Epochs[extra:]
	}
	return nil
}

// unused returns where cells began in the epoch before, if that was never ready: nobody has used it, so that positions come from the
// one before it, and nothing has moved since.
func (c *change) unused(status *cellplanev1alpha1.CellTopologyStatus) map[string]int64 {
	before := c.topology.Status.Phase
	last := len(status.Epochs) - 1
	if last < 0 || status.Epochs[last].Epoch != c.topology.Status.ObservedGeneration || (before != cellplanev1alpha1.TopologyFencing && before != cellplanev1alpha1.TopologyPromoting) {
		return nil
	}
	begun := maps.Clone(status.Epochs[last].From)
	maps.DeleteFunc(begun, func(name string, _ int64) bool { return c.cells[name] == nil })
	return begun
}

// keptEpochs is how many epochs the status speaks of.
const keptEpochs = 16

// lost returns the cells that have failed since the epoch before.
func (c *change) lost() []string {
	return slices.DeleteFunc(c.in(cellplanev1alpha1.CellStateFailed), func(name string) bool {
		return !slices.ContainsFunc(c.topology.Status.Cells, func(before cellplanev1alpha1.CellSlots) bool {
			return before.Name == name && before.Slots+before.TargetSlots > 0
		})
	})
}

// holdings returns how many slots each cell has.
func (c *change) holdings() []cellplanev1alpha1.CellSlots {
	var all []cellplanev1alpha1.CellSlots
	for _, h := range c.compiled.Balance() {
		all = append(all, cellplanev1alpha1.CellSlots{Name: h.Cell, Slots: int32(h.Before), TargetSlots: int32(h.After), BackupSlots: int32(h.Backup)})
	}
	return all
}

// fenced tells whether all cells refuse the former epoch.
func (c *change) fenced() bool {
	return c.topology.Status.ObservedGeneration == c.topology.Generation && c.topology.Status.FencedEpoch >= c.topology.Generation
}

// admitting tells whether cells join that may still hold what they had before they failed.
func (c *change) admitting() bool {
	return !c.fenced() && len(c.in(cellplanev1alpha1.CellStateIn)) > 0
}

// follow has the topology followed. What a cell that returns still has must not be taken for new: that comes after it was admitted.
func (c *change) follow() {
	if c.Follow != nil {
		c.Follow(c.compiled)
	}
}

// admit prepares the cells that join.
func (c *change) admit(ctx context.Context) error {
	for _, name := range c.in(cellplanev1alpha1.CellStateIn) {
		if c.Admit == nil {
			return nil
		}
		if err := c.Admit(ctx, c.compiled, name); err != nil {
			return err
		}
	}
	return nil
}

// prepareTargets makes sure that the cells can take what they get.
func (c *change) prepareTargets(ctx context.Context) error {
	for _, name := range c.in(cellplanev1alpha1.CellStateIn) {
		if err := c.grantAll(ctx, name); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for name, connection := range c.cells {
		group.Go(func() error { return checkEncryption(ctx, connection.store) })
		if index, _ := c.compiled.Index(name); c.gains(index) {
			group.Go(func() error { return c.checkTarget(ctx, name, connection) })
		}
	}
	return group.Wait()
}

// clearTargets removes what earlier moves have left behind where objects go now.
func (c *change) clearTargets(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for name, connection := range c.cells {
		index, _ := c.compiled.Index(name)
		if !c.gains(index) {
			continue
		}
		group.Go(func() error {
			return c.sweep(ctx, connection.store, func(slot slots.Slot) bool {
				route := c.compiled.Route(slot)
				return route.Moving() && route.New == index
			}, false)
		})
	}
	return group.Wait()
}

// gains reports whether a cell gets slots.
func (c *change) gains(cell slots.Index) bool {
	for slot := range slots.Slot(slots.Count) {
		if route := c.compiled.Route(slot); route.Moving() && route.New == cell {
			return true
		}
	}
	return false
}

// grantWithin is how long a member may take to give a cell an identity.
const grantWithin = 15 * time.Second

// grantAll gives a cell an identity in all members. A member that cannot be reached does not hold the change up: the cell's engine
// tells of what it cannot do there, and failover.Identities makes up for it.
func (c *change) grantAll(ctx context.Context, cell string) error {
	grant := c.Grant
	if grant == nil {
		grant = func(ctx context.Context, cluster, cell string) error {
			return membership.Grant(ctx, c.HubConfig, cluster, cell)
		}
	}
	var clusters clusterv1alpha1.ClusterList
	if err := c.Hub.List(ctx, &clusters); err != nil {
		return fmt.Errorf("listing clusters: %w", err)
	}
	var group errgroup.Group
	group.SetLimit(16)
	for i := range clusters.Items {
		cluster := &clusters.Items[i]
		if cluster.Spec.SyncMode == clusterv1alpha1.Pull {
			continue
		}
		group.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, grantWithin)
			defer cancel()
			if err := grant(limited, cluster.Name, cell); err != nil {
				klog.FromContext(ctx).Info("A joining cell has no identity in a member yet", "cell", cell, "cluster", cluster.Name, "reason", err.Error())
				c.event(c.topology, corev1.EventTypeWarning, "IdentityMissing", "Grant", "cell %s has no identity in cluster %s: %v", cell, cluster.Name, err)
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	return ctx.Err()
}

// run moves everything and ends the change.
func (c *change) run(ctx context.Context) error {
	if c.topology.Status.Phase != cellplanev1alpha1.TopologyMoved {
		verifying, stop := context.WithCancel(ctx)
		defer stop()
		witnesses := newVerification(verifying)
		mover := &Mover{
			Topology: c.compiled, Stores: map[string]*cellstore.Store{}, Term: c.Term, Window: max(int(c.topology.Spec.Migration.Window), 1),
			Verify: func(ctx context.Context, from, to string, object *cellstore.Object, stored cellstore.KV) error {
				return witnesses.verify(ctx, c.cells[from].reader, c.cells[to].reader, object, stored)
			},
		}
		for name, connection := range c.cells {
			mover.Stores[name] = connection.store
		}
		if err := c.move(ctx, mover); err != nil {
			return err
		}
	}
	return c.end(ctx, c.topology)
}

// move runs the mover and publishes how far it is.
func (c *change) move(ctx context.Context, mover *Mover) error {
	var moved slotSet
	mover.Moved = moved.add
	began := time.Now()
	if err := c.publishMove(ctx, mover, &moved); err != nil {
		return err
	}
	c.event(c.topology, corev1.EventTypeNormal, "Moving", "Rebalance", "objects move: %s", c.describe())
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { ended <- mover.Run(ctx) }()
	ticker := time.NewTicker(publishInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil {
				return err
			}
			return c.finish(ctx, mover, &moved, time.Since(began))
		case <-ticker.C:
		}
		if err := c.publishMove(ctx, mover, &moved); err != nil {
			klog.FromContext(ctx).V(1).Info("The progress of the move cannot be published", "reason", err.Error())
		}
	}
}

func (c *change) publishMove(ctx context.Context, mover *Mover, moved *slotSet) error {
	status := c.status()
	status.Phase = cellplanev1alpha1.TopologyMoving
	if status.Change == nil || status.Change.Epoch != c.topology.Generation {
		status.Change = &cellplanev1alpha1.TopologyChange{Epoch: c.topology.Generation, StartedAt: now()}
	}
	status.Change.MovedObjects, status.Change.TotalObjects = mover.Progress()
	status.Change.MovedSlots = moved.bitmap()
	objects.WithLabelValues("moved").Set(float64(status.Change.MovedObjects))
	objects.WithLabelValues("waiting").Set(float64(status.Change.TotalObjects - status.Change.MovedObjects))
	setSettled(status, c.topology.Generation, metav1.ConditionFalse, "Moving", c.describe())
	return c.publish(ctx, status)
}

// finish says that everything has moved, and up to where the cells that have lost objects must have been read.
func (c *change) finish(ctx context.Context, mover *Mover, moved *slotSet, took time.Duration) error {
	status := c.status()
	status.Phase = cellplanev1alpha1.TopologyMoved
	status.Change.MovedObjects, status.Change.TotalObjects = mover.Progress()
	status.Change.MovedSlots = moved.bitmap()
	status.LeftoversSince = now()
	next := cellplanev1alpha1.TopologyEpoch{Epoch: c.topology.Generation + 1, Least: mover.Least()}
	// A cell that leaves has to be read to its end: users may have deleted the last objects in it.
	for _, name := range c.in(cellplanev1alpha1.CellStateOut) {
		revision, err := c.cells[name].store.Revision(ctx)
		if err != nil {
			return err
		}
		next.Least[name] = revision
	}
	status.Epochs = slices.DeleteFunc(status.Epochs, func(e cellplanev1alpha1.TopologyEpoch) bool { return e.Epoch >= next.Epoch })
	status.Epochs = append(status.Epochs, next)
	if extra := len(status.Epochs) - keptEpochs; extra > 0 {
		status.Epochs = status.Epochs[extra:]
	}
	setSettled(status, c.topology.Generation, metav1.ConditionFalse, "Moved", "everything has moved, and the change ends")
	c.event(c.topology, corev1.EventTypeNormal, "Moved", "Rebalance", "%d objects have moved in %v: %s", status.Change.MovedObjects, took.Round(time.Millisecond), c.describe())
	return c.publish(ctx, status)
}

// describe puts the change into words.
func (c *change) describe() string {
	gaining, losing := map[string]int{}, map[string]int{}
	for _, flow := range c.compiled.Flows() {
		gaining[flow.To] += len(flow.Slots)
		losing[flow.From] += len(flow.Slots)
	}
	text := ""
	for _, side := range []struct {
		word  string
		cells map[string]int
	}{{"leave", losing}, {"join", gaining}} {
		for _, name := range slices.Sorted(maps.Keys(side.cells)) {
			if text != "" {
				text += ", "
			}
			text += fmt.Sprintf("%d slots %s %s", side.cells[name], side.word, name)
		}
	}
	return text
}

// settle says that nothing moves.
func (c *change) settle(ctx context.Context) error {
	status := c.status()
	status.Phase = cellplanev1alpha1.TopologyStable
	if status.Change != nil {
		status.Change.MovedSlots = nil // how much has moved stays for who asks late
	}
	if status.LeftoversSince == nil {
		setSettled(status, c.topology.Generation, metav1.ConditionTrue, "Stable", "no change is under way")
	} else {
		setSettled(status, c.topology.Generation, metav1.ConditionFalse, "LeftoversKept", "no change is under way; what was left behind is removed after the grace period")
	}
	objects.Reset()
	return c.publish(ctx, status)
}
