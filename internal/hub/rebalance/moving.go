package rebalance

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cellstore"
)

// run moves everything and ends the change.
func (c *change) run(ctx context.Context) error {
	if c.topology.Status.Phase != cellplanev1alpha1.TopologyMoved {
		verifying, stop := context.WithCancel(ctx)
		defer stop()
		verifier := newVerifier(verifying)
		mover := &Mover{
			Topology: c.compiled, Stores: map[string]*cellstore.Store{}, Term: c.Term, Window: max(int(c.topology.Spec.Migration.Window), 1),
			Verify: func(ctx context.Context, from, to string, object *cellstore.Object, stored cellstore.KV) error {
				return verifier.verify(ctx, c.cells[from].reader, c.cells[to].reader, object, stored)
			},
		}
		for name, connection := range c.cells {
			mover.Stores[name] = connection.store
		}
		if err := c.move(ctx, mover); err != nil {
			return err
		}
	}
	if err := c.dismiss(ctx); err != nil {
		return err
	}
	return c.end(ctx, c.topology)
}

// move runs the mover and publishes its progress.
func (c *change) move(ctx context.Context, mover *Mover) error {
	var moved slotSet
	mover.Moved = moved.add
	began := time.Now()
	if err := c.publishMove(ctx, mover, &moved); err != nil {
		return err
	}
	c.event(c.topology, corev1.EventTypeNormal, reasonMoving, "Rebalance", "objects move: %s", c.describe())
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
		err := c.publishMove(ctx, mover, &moved)
		if errors.Is(err, errOverwritten) {
			cancel()
			<-ended
			return err
		}
		if err != nil {
			klog.FromContext(ctx).V(1).Info("publishing the progress of the move failed", "err", err.Error())
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
	observeMove(status.Change, mover.UnderWay())
	setSettled(status, c.topology.Generation, metav1.ConditionFalse, reasonMoving, c.describe())
	return c.publish(ctx, status)
}

// finish publishes that everything has moved, and up to which revision watches must have read the cells that have
// lost objects.
func (c *change) finish(ctx context.Context, mover *Mover, moved *slotSet, took time.Duration) error {
	status := c.status()
	status.Phase = cellplanev1alpha1.TopologyMoved
	status.Change.MovedObjects, status.Change.TotalObjects = mover.Progress()
	status.Change.MovedSlots = moved.bitmap()
	observeMove(status.Change, 0)
	status.LeftoversSince = now()
	next := cellplanev1alpha1.TopologyEpoch{Epoch: c.topology.Generation + 1, Least: mover.Least()}
	// Watches must read a leaving cell to its end: users may have deleted the last objects in it.
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
	setSettled(status, c.topology.Generation, metav1.ConditionFalse, reasonMoved, "everything has moved; the change is ending")
	c.event(c.topology, corev1.EventTypeNormal, reasonMoved, "Rebalance", "%d objects have moved in %v: %s", status.Change.MovedObjects, took.Round(time.Millisecond), c.describe())
	return c.publish(ctx, status)
}
