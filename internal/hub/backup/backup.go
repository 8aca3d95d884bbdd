package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// Controller maintains the backups of all cells. Set gives it the topology.
type Controller struct {
	// Term of the hub manager.
	Term cellstore.Term
	// Open returns the connection to the store of a cell. The controller does not close it.
	Open func(ctx context.Context, cell string) (*cellstore.Store, error)

	once      sync.Once
	changed   chan struct{}
	comparing chan struct{} // limits how many sources compare at once

	mu       sync.Mutex
	topology *slots.Map
	sources  map[string]*source
}

func (c *Controller) prepare() {
	c.once.Do(func() {
		c.changed, c.comparing = make(chan struct{}, 1), make(chan struct{}, cellstore.Passes())
	})
}

// Set changes the topology. Copies that stay where they are are not made again.
func (c *Controller) Set(topology *slots.Map) {
	c.prepare()
	c.mu.Lock()
	same := c.topology != nil && c.topology.Epoch() == topology.Epoch()
	c.topology = topology
	c.mu.Unlock()
	if same {
		return
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Run maintains backups until the context ends or a hub manager with a higher term has taken over.
func (c *Controller) Run(ctx context.Context) error {
	c.prepare()
	select {
	case <-ctx.Done():
		return nil
	case <-c.changed:
	}
	for ctx.Err() == nil {
		if err := c.runUnder(ctx); err != nil {
			return err
		}
	}
	return nil
}

// runUnder maintains backups until the topology changes.
func (c *Controller) runUnder(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	topology := c.topology
	c.sources = map[string]*source{}
	for i := range topology.Cells() {
		if cell := topology.Cell(slots.Index(i)); cell.State != slots.Failed {
			c.sources[cell.Name] = &source{} // not started yet
		}
	}
	c.mu.Unlock()

	var sources sync.WaitGroup
	defer sources.Wait()
	defer cancel()
	deposed := make(chan error, topology.Cells()+1)
	for i := range topology.Cells() {
		if topology.Cell(slots.Index(i)).State == slots.Failed {
			continue // nothing is written to it, and its copies must stay
		}
		sources.Go(func() {
			if err := c.follow(ctx, topology, slots.Index(i)); err != nil {
				deposed <- err
			}
		})
	}
	sources.Go(func() { c.purge(ctx, topology) })
	select {
	case <-ctx.Done():
		return nil
	case err := <-deposed:
		return err
	case <-c.changed:
		return nil
	}
}

// follow backs a cell up and retries after errors.
func (c *Controller) follow(ctx context.Context, topology *slots.Map, cell slots.Index) error {
	logger := klog.FromContext(ctx).WithValues("cell", topology.Name(cell))
	delay := retryDelay
	for ctx.Err() == nil {
		began := time.Now()
		err := c.backUp(ctx, topology, cell)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, cellstore.ErrFenced):
			return err
		}
		logger.Info("backup of a cell was interrupted, starting again", "err", fmt.Sprint(err))
		if time.Since(began) > time.Minute {
			delay = retryDelay
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay.Step()):
		}
	}
	return nil
}

func (c *Controller) backUp(ctx context.Context, topology *slots.Map, cell slots.Index) error {
	name := topology.Name(cell)
	store, err := c.Open(ctx, name)
	if err != nil {
		return err
	}
	targets := map[slots.Index]*cellstore.Store{}
	for i := range topology.Cells() {
		other := topology.Cell(slots.Index(i))
		if slots.Index(i) == cell || other.State == slots.Failed {
			continue
		}
		if targets[slots.Index(i)], err = c.Open(ctx, other.Name); err != nil {
			return err
		}
	}
	s := &source{topology: topology, cell: cell, store: store, targets: targets, term: c.Term, comparing: c.comparing}
	c.mu.Lock()
	c.sources[name] = s
	c.mu.Unlock()
	return s.run(ctx)
}

// purge removes the copies of cells that are no longer in the topology. Those of failed cells stay: they may be the
// only ones. The record of what was received is removed too, or it would be taken for that of a cell of the same name
// that joins later.
func (c *Controller) purge(ctx context.Context, topology *slots.Map) {
	var targets sync.WaitGroup
	defer targets.Wait()
	for i := range topology.Cells() {
		if target := topology.Cell(slots.Index(i)); target.State != slots.Failed {
			targets.Go(func() { c.keepPurging(ctx, topology, target.Name) })
		}
	}
}

// keepPurging purges a backup cell and retries after errors.
func (c *Controller) keepPurging(ctx context.Context, topology *slots.Map, target string) {
	for delay := retryDelay; ; {
		err := c.purgeAt(ctx, topology, target)
		if err == nil || ctx.Err() != nil || errors.Is(err, cellstore.ErrFenced) {
			return
		}
		klog.FromContext(ctx).Info("copies of cells that have left cannot be removed yet", "backupCell", target, "err", err.Error())
		if !sleep(ctx, delay.Step()) {
			return
		}
	}
}

func (c *Controller) purgeAt(ctx context.Context, topology *slots.Map, target string) error {
	store, err := c.Open(ctx, target)
	if err != nil {
		return err
	}
	// Of a drained cell there may be no copies, only the record that there are none.
	for _, root := range []string{Root, progressRoot, scopeRoot, guardRoot} {
		for next := root; ; {
			key, err := store.Next(ctx, root, next)
			if err != nil {
				return err
			}
			if key == "" {
				break
			}
			cell, _, _ := strings.Cut(strings.TrimPrefix(key, root), "/")
			if _, member := topology.Index(cell); !member {
				operations := append(Forget(cell), clientv3.OpDelete(Prefix(cell), clientv3.WithPrefix()))
				if _, err := store.Txn(ctx, c.Term, nil, operations...); err != nil {
					return err
				}
			}
			if next = key + "\x00"; root == Root {
				next = clientv3.GetPrefixRangeEnd(Prefix(cell))
			}
		}
	}
	return nil
}

// State is how far the backup of a cell is.
type State struct {
	// Complete means that every backup cell has everything that was stored when the watch began. Before that only
	// Pending is known.
	Complete bool
	// Revision of the cell's store up to which every write is copied.
	Revision int64
	// Pending is the number of keys that have changed since they were copied.
	Pending int
	// Oldest is when the first of them was seen to change.
	Oldest time.Time
	// Waiting are the backup cells that have not been compared yet.
	Waiting []string
}

// States returns how far the backups of all cells are, by cell.
func (c *Controller) States() map[string]State {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]State{}
	for name, s := range c.sources {
		targets, begun := s.states()
		state := State{Complete: begun}
		for target, pair := range targets {
			if !pair.synced {
				state.Complete = false
				state.Waiting = append(state.Waiting, target)
			}
			if state.Revision == 0 || pair.written < state.Revision {
				state.Revision = pair.written
			}
			state.Pending += pair.pending
			if !pair.oldest.IsZero() && (state.Oldest.IsZero() || pair.oldest.Before(state.Oldest)) {
				state.Oldest = pair.oldest
			}
			pendingKeys.WithLabelValues(name, target).Set(float64(pair.pending))
		}
		slices.Sort(state.Waiting)
		all[name] = state
	}
	return all
}
