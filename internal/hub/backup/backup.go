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

// Controller keeps the backups of all cells. Tell it the topology with Set, and Run it.
type Controller struct {
	// Term is that of the hub manager.
	Term cellstore.Term
	// Open returns the connection to the store of a cell. It belongs to whoever opened it.
	Open func(ctx context.Context, cell string) (*cellstore.Store, error)

	once      sync.Once
	changed   chan struct{}
	comparing chan struct{} // holds as many as compare at once

	mu       sync.Mutex
	topology *slots.Map
	sources  map[string]*source
}

func (c *Controller) prepare() {
	c.once.Do(func() {
		c.changed, c.comparing = make(chan struct{}, 1), make(chan struct{}, cellstore.Passes())
	})
}

// Set says where objects belong from now on. What has been copied and stays where it is is not copied again.
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

// Run keeps backups until the context ends or somebody with a higher term has taken over.
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

// runUnder keeps backups as long as the topology stays as it is.
func (c *Controller) runUnder(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	topology := c.topology
	c.sources = map[string]*source{}
	for i := range topology.Cells() {
		if cell := topology.Cell(slots.Index(i)); cell.State != slots.Failed {
			c.sources[cell.Name] = &source{} // which has not begun, and may not for long
		}
	}
	c.mu.Unlock()

	var sources sync.WaitGroup
	defer sources.Wait()
	defer cancel()
	deposed := make(chan error, topology.Cells()+1)
	for i := range topology.Cells() {
		if topology.Cell(slots.Index(i)).State == slots.Failed {
			continue // it has no writes to copy, and its copies are all there is
		}
		sources.Go(func() {
			if err := c.keepUp(ctx, topology, slots.Index(i)); err != nil {
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

// keepUp follows a cell, again and again if it has to.
func (c *Controller) keepUp(ctx context.Context, topology *slots.Map, cell slots.Index) error {
	logger := klog.FromContext(ctx).WithValues("cell", topology.Name(cell))
	delay := retryDelay
	for ctx.Err() == nil {
		began := time.Now()
		err := c.follow(ctx, topology, cell)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, cellstore.ErrDeposed):
			return err
		}
		logger.Info("Backing a cell up anew", "reason", fmt.Sprint(err))
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

func (c *Controller) follow(ctx context.Context, topology *slots.Map, cell slots.Index) error {
	name := topology.Name(cell)
	store, err := c.Open(ctx, name)
	if err != nil {
		return err
	}
	keepers := map[slots.Index]*cellstore.Store{}
	for i := range topology.Cells() {
		other := topology.Cell(slots.Index(i))
		if slots.Index(i) == cell || other.State == slots.Failed {
			continue
		}
		if keepers[slots.Index(i)], err = c.Open(ctx, other.Name); err != nil {
			return err
		}
	}
	s := &source{topology: topology, cell: cell, store: store, keepers: keepers, term: c.Term, comparing: c.comparing}
	c.mu.Lock()
	c.sources[name] = s
	c.mu.Unlock()
	return s.run(ctx)
}

// purge removes the copies of cells that are in the topology no more. Those of failed cells stay: they may be all there is.
// What a keeper vouches for has to go with them: should a cell of that name join later, it would be taken for what the keeper has of it.
func (c *Controller) purge(ctx context.Context, topology *slots.Map) {
	var keepers sync.WaitGroup
	defer keepers.Wait()
	for i := range topology.Cells() {
		if keeper := topology.Cell(slots.Index(i)); keeper.State != slots.Failed {
			keepers.Go(func() { c.keepPurging(ctx, topology, keeper.Name) })
		}
	}
}

// keepPurging purges a keeper, again and again if it has to.
func (c *Controller) keepPurging(ctx context.Context, topology *slots.Map, keeper string) {
	for delay := retryDelay; ; {
		err := c.purgeAt(ctx, topology, keeper)
		if err == nil || ctx.Err() != nil || errors.Is(err, cellstore.ErrDeposed) {
			return
		}
		klog.FromContext(ctx).Info("Copies of cells that have left remain for now", "keeper", keeper, "reason", err.Error())
		if !rest(ctx, delay.Step()) {
			return
		}
	}
}

func (c *Controller) purgeAt(ctx context.Context, topology *slots.Map, keeper string) error {
	store, err := c.Open(ctx, keeper)
	if err != nil {
		return err
	}
	// A keeper may have nothing of a cell that was drained, and vouch for just that.
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

// Standing tells how far the backup of a cell is.
type Standing struct {
	// Complete is set when every keeper has everything that was there when the cell began to be followed. Before that nothing is known
	// but Pending.
	Complete bool
	// Revision of the cell's store up to which every write is copied.
	Revision int64
	// Pending is the number of keys that have changed since they were copied.
	Pending int
	// Oldest is when the first of them was seen to change.
	Oldest time.Time
	// Waiting are the keepers that have not been compared yet.
	Waiting []string
}

// Standings returns how far the backups of all cells are.
func (c *Controller) Standings() map[string]Standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]Standing{}
	for name, s := range c.sources {
		keepers, begun := s.standings()
		standing := Standing{Complete: begun}
		for keeper, pair := range keepers {
			if !pair.synced {
				standing.Complete = false
				standing.Waiting = append(standing.Waiting, keeper)
			}
			if standing.Revision == 0 || pair.written < standing.Revision {
				standing.Revision = pair.written
			}
			standing.Pending += pair.pending
			if !pair.oldest.IsZero() && (standing.Oldest.IsZero() || pair.oldest.Before(standing.Oldest)) {
				standing.Oldest = pair.oldest
			}
			pendingKeys.WithLabelValues(name, keeper).Set(float64(pair.pending))
		}
		slices.Sort(standing.Waiting)
		all[name] = standing
	}
	return all
}
