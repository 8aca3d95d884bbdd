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

// held is a federated object in the store of a cell.
type held struct {
	*cellstore.Object
	class cellstore.Class
	slot  slots.Slot
	// key in the store, without its prefix.
	key string
}

// heldIn visits the federated objects and Works in a store.
func heldIn(ctx context.Context, store *cellstore.Store, visit func(cellstore.KV, held) error) error {
	for kv, err := range store.Range(ctx, store.Prefix(), 0) {
		if err != nil {
			return err
		}
		object, err := cellstore.Parse(kv.Value)
		if err != nil {
			return fmt.Errorf("parsing %s in cell %s: %w", kv.Key, store.Cell, err)
		}
		class, slot := cellstore.Classify(object)
		if class == cellstore.Local {
			continue
		}
		key, _ := store.Relative(kv.Key)
		if err := visit(kv, held{object, class, slot, key}); err != nil {
			return err
		}
	}
	return nil
}

// clearTargets removes stale copies of earlier moves from the cells that get their slots now, and strays that came since clearStrays.
func (c *change) clearTargets(ctx context.Context) error {
	return c.clear(ctx, func(target slots.Index, o held) bool {
		return o.isStale() || c.strays != nil && c.strays.has(target, o)
	})
}

// clear removes some objects from the cells that get their slots.
func (c *change) clear(ctx context.Context, goes func(slots.Index, held) bool) error {
	group, ctx := errgroup.WithContext(ctx)
	for name, connection := range c.cells {
		index, _ := c.compiled.Index(name)
		if !c.gains(index) {
			continue
		}
		group.Go(func() error {
			return c.sweep(ctx, connection.store, func(o held) bool {
				route := c.compiled.Route(o.slot)
				return route.Moving() && route.New == index && goes(index, o)
			})
		})
	}
	return group.Wait()
}

// sweep removes some objects from a cell.
func (c *change) sweep(ctx context.Context, store *cellstore.Store, goes func(held) bool) error {
	return heldIn(ctx, store, func(kv cellstore.KV, o held) error {
		if !goes(o) {
			return nil
		}
		if o.class == cellstore.Template && !o.isStale() {
			klog.FromContext(ctx).Info("removing an object that was created in a cell after its slot had left; its creation was not acknowledged", "cell", store.Cell, "object", o.String())
		}
		_, err := store.Txn(ctx, c.Term, []clientv3.Cmp{cellstore.Unchanged(kv.Key, kv.ModRevision)}, cellstore.Delete(kv.Key))
		if err != nil && !errors.Is(err, cellstore.ErrConflict) {
			return fmt.Errorf("removing %s from cell %s: %w", o, store.Cell, err)
		}
		removedStale.Inc()
		return nil
	})
}

// isStale reports whether an object is what a move has left behind.
func (o held) isStale() bool { return o.Labels[names.RebalanceStatusLabel] == names.RebalanceMigrated }

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
	former := member
	if !member {
		if former, err = connection.wasMember(limited); err != nil {
			return err
		}
	}
	return c.sweep(ctx, connection.store, func(o held) bool {
		return (!member || c.compiled.Route(o.slot).New != index) && (o.isStale() || former && o.mayBeStray())
	})
}
