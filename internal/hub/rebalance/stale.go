package rebalance

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// clearTargets removes stale copies of earlier moves from the cells that get their slots now.
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

// sweep removes stale copies from a cell, in some slots. With strays it also removes bindings and Works that an
// engine has stored after their template had moved.
func (c *change) sweep(ctx context.Context, store *cellstore.Store, in func(slots.Slot) bool, strays bool) error {
	for kv, err := range store.Range(ctx, store.Prefix(), 0) {
		if err != nil {
			return err
		}
		object, err := cellstore.Parse(kv.Value)
		if err != nil {
			return fmt.Errorf("parsing %s in cell %s: %w", kv.Key, store.Cell, err)
		}
		class, slot := cellstore.Classify(object)
		if class == cellstore.Local || !in(slot) {
			continue
		}
		stale := object.Labels[names.RebalanceStatusLabel] == names.RebalanceMigrated
		if !stale && (!strays || class == cellstore.Template) {
			continue
		}
		_, err = store.Txn(ctx, c.Term, []clientv3.Cmp{cellstore.Unchanged(kv.Key, kv.ModRevision)}, cellstore.Delete(kv.Key))
		if err != nil && !errors.Is(err, cellstore.ErrConflict) {
			return fmt.Errorf("removing %s from cell %s: %w", object, store.Cell, err)
		}
		removedStale.Inc()
	}
	return nil
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
	return c.sweep(ctx, connection.store, func(slot slots.Slot) bool { return !member || c.compiled.Route(slot).New != index }, true)
}
