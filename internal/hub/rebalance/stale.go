package rebalance

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// clearTargets removes stale copies of earlier moves from the cells that get their slots now.
func (c *change) clearTargets(ctx context.Context) error { return c.clear(ctx, c.gains, isStale) }

// clearStrays removes what was stored in these cells after the slots had left them. The mover would take it for a newer object than the one that
// returns. It is certain that nobody was told of it as long as the last change is over and this one is not in force. What a cell has when it
// joins stays.
func (c *change) clearStrays(ctx context.Context) error {
	status := &c.topology.Status
	if !c.running() || status.Phase != cellplanev1alpha1.TopologyStable || status.LeftoversSince == nil {
		return nil
	}
	return c.clear(ctx, func(cell slots.Index) bool { return c.gains(cell) && c.compiled.Cell(cell).State != slots.In }, isStray)
}

// clear removes some objects from the targets that get their slots.
func (c *change) clear(ctx context.Context, targets func(slots.Index) bool, goes func(cellstore.Class, *cellstore.Object) bool) error {
	group, ctx := errgroup.WithContext(ctx)
	for name, connection := range c.cells {
		index, _ := c.compiled.Index(name)
		if !targets(index) {
			continue
		}
		group.Go(func() error {
			return c.sweep(ctx, connection.store, func(slot slots.Slot) bool {
				route := c.compiled.Route(slot)
				return route.Moving() && route.New == index
			}, goes)
		})
	}
	return group.Wait()
}

// sweep removes some objects from a cell, in some slots.
func (c *change) sweep(ctx context.Context, store *cellstore.Store, in func(slots.Slot) bool, goes func(cellstore.Class, *cellstore.Object) bool) error {
	for kv, err := range store.Range(ctx, store.Prefix(), 0) {
		if err != nil {
			return err
		}
		object, err := cellstore.Parse(kv.Value)
		if err != nil {
			return fmt.Errorf("parsing %s in cell %s: %w", kv.Key, store.Cell, err)
		}
		class, slot := cellstore.Classify(object)
		if class == cellstore.Local || !in(slot) || !goes(class, object) {
			continue
		}
		if class == cellstore.Template && isStray(class, object) {
			klog.FromContext(ctx).Info("removing an object that was created in a cell after its slot had left; its creation was not acknowledged", "cell", store.Cell, "object", object.String())
		}
		_, err = store.Txn(ctx, c.Term, []clientv3.Cmp{cellstore.Unchanged(kv.Key, kv.ModRevision)}, cellstore.Delete(kv.Key))
		if err != nil && !errors.Is(err, cellstore.ErrConflict) {
			return fmt.Errorf("removing %s from cell %s: %w", object, store.Cell, err)
		}
		removedStale.Inc()
	}
	return nil
}

// isStale reports whether an object is what a move has left behind.
func isStale(_ cellstore.Class, object *cellstore.Object) bool {
	return object.Labels[names.RebalanceStatusLabel] == names.RebalanceMigrated
}

// isStray reports whether an object was stored after its slot had left the cell: bindings and Works of an engine that was behind, and creations
// that no client was told of.
func isStray(class cellstore.Class, object *cellstore.Object) bool {
	return !isStale(class, object) && (class != cellstore.Template || isLateCreation(object))
}

// isLateCreation reports whether a template in a cell that does not own its slot was stored there by a creation that was
// admitted before the slot left. Its client was told that the outcome is unknown, and reads do not show it.
func isLateCreation(object *cellstore.Object) bool {
	switch object.Namespace {
	case metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease:
		return false // control planes store objects of their own there
	}
	return object.Labels[names.RebalanceStatusLabel] == "" && object.Annotations[names.CopiedFromHubAnnotation] == ""
}

// cleanUp removes stale copies after the grace period. Members are not affected: the engine of the cell ignores these
// objects and their removal.
func (c *change) cleanUp(ctx context.Context) error {
	since := c.topology.Status.LeftoversSince
	if since == nil {
		return nil
	}
	grace := 12 * time.Hour
	if given := c.topology.Spec.Migration.GracePeriod; given != nil {
		grace = given.Duration
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(time.Until(since.Add(grace))):
	}
	var all cellplanev1alpha1.CellList
	if err := c.Hub.List(ctx, &all); err != nil {
		return fmt.Errorf("listing cells: %w", err)
	}
	for i := range all.Items {
		name := all.Items[i].Name
		index, member := c.compiled.Index(name)
		if member && c.compiled.Cell(index).State == slots.Failed {
			continue // it is emptied when it returns
		}
		if err := c.cleanCell(ctx, name, index, member); err != nil {
			if member {
				return err
			}
			klog.FromContext(ctx).Info("removing stale copies from a cell that has left failed", "cell", name, "err", err.Error())
		}
	}
	status := c.status()
	status.LeftoversSince = nil
	setSettled(status, c.topology.Generation, "True", reasonStable, "no change is under way")
	c.event(c.topology, "Normal", reasonCleanedUp, "Rebalance", "the stale copies in the former cells of objects were removed")
	return c.publish(ctx, status)
}

func (c *change) cleanCell(ctx context.Context, name string, index slots.Index, member bool) error {
	connection, err := c.Cells.to(ctx, name)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, cellTimeout)
	defer cancel()
	if err := connection.store.RaiseTerm(limited, c.Term); err != nil {
		return err
	}
	return c.sweep(ctx, connection.store, func(slot slots.Slot) bool { return !member || c.compiled.Route(slot).New != index }, func(class cellstore.Class, object *cellstore.Object) bool {
		return isStale(class, object) || isStray(class, object)
	})
}
