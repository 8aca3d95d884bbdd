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
	// Fullness, if not nil, returns why a cell has no room for copies; empty if it has. What a failed cell has left is copied nevertheless.
	Fullness func(cell string) string

	once      sync.Once
	changed   chan struct{}
	comparing chan struct{} // limits how many sources compare at once

	progressed notifier // of everything that WaitCopied waits for

	mu       sync.Mutex
	topology *slots.Map
	sources  map[string]*source // those that run
	// failing are the cells whose sources have ended, and have not begun again.
	failing map[string]failure
	// served are the last topologies in which the cells had not failed.
	served map[string]*slots.Map
	// tails limits the copying of tails to one at a time.
	tails chan struct{}
}

func (c *Controller) prepare() {
	c.once.Do(func() {
		c.changed, c.comparing = make(chan struct{}, 1), make(chan struct{}, cellstore.Passes())
		c.tails = make(chan struct{}, 1)
	})
}

// Set changes the topology. Copies that stay where they are are not made again.
func (c *Controller) Set(topology *slots.Map) {
	c.prepare()
	c.mu.Lock()
	same := c.topology != nil && c.topology.Epoch() == topology.Epoch()
	c.topology = topology
	c.served = servedBy(topology, c.served)
	c.mu.Unlock()
	c.progressed.notify()
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
	defer c.ended()
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
	sources.Go(func() { c.renewKeys(ctx, topology) })
	select {
	case <-ctx.Done():
		return nil
	case err := <-deposed:
		return err
	case <-c.changed:
		return nil
	}
}

// ended records that no source runs.
func (c *Controller) ended() {
	c.mu.Lock()
	c.sources = nil
	c.mu.Unlock()
	c.progressed.notify()
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
		c.failed(topology.Name(cell), err)
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

// failed records that the source of a cell has ended with an error.
func (c *Controller) failed(name string, err error) {
	var target unreachable
	_ = errors.As(err, &target)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources[name] = &source{}
	if errors.Is(err, errCompareAgain) {
		return
	}
	if c.failing == nil {
		c.failing = map[string]failure{}
	}
	now := failure{since: time.Now(), cell: target.cell, replaced: errors.Is(err, ErrReplaced), problem: problemOf(err)}
	if before, failing := c.failing[name]; !failing || before.cell != now.cell || before.replaced != now.replaced || before.problem != now.problem {
		c.failing[name] = now
	}
}

// begun records that the store of a cell answers.
func (c *Controller) begun(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.failing, name)
}

// unreachable is the error of a backup cell that cannot be connected to.
type unreachable struct {
	cell string
	error
}

func (u unreachable) Unwrap() error { return u.error }

func (c *Controller) backUp(ctx context.Context, topology *slots.Map, cell slots.Index) error {
	name := topology.Name(cell)
	store, targets, err := c.open(ctx, topology, cell)
	if err != nil {
		return err
	}
	s := c.newSource(topology.Epoch(), placementsOf(topology, cell), store, targets)
	s.began, s.fullness = func() { c.begun(name) }, c.Fullness
	c.mu.Lock()
	c.sources[name] = s
	c.mu.Unlock()
	return s.run(ctx)
}

// open connects to a cell and to all others that have not failed.
func (c *Controller) open(ctx context.Context, topology *slots.Map, cell slots.Index) (*cellstore.Store, map[slots.Index]*cellstore.Store, error) {
	store, err := c.Open(ctx, topology.Name(cell))
	if err != nil {
		return nil, nil, err
	}
	targets := map[slots.Index]*cellstore.Store{}
	for i := range topology.Cells() {
		other := topology.Cell(slots.Index(i))
		if slots.Index(i) == cell || other.State == slots.Failed {
			continue
		}
		if targets[slots.Index(i)], err = c.Open(ctx, other.Name); err != nil {
			return nil, nil, unreachable{other.Name, err}
		}
	}
	return store, targets, nil
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
				operations := append(Forget(cell), clientv3.OpDelete(Prefix(cell), clientv3.WithPrefix()), cellstore.Delete(store.Key(recordKey(cell))))
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
	// Alone means that there is no other cell that could keep a backup.
	Alone bool
	// Failed means that the cell has failed, so that nothing is backed up.
	Failed bool
	// Revision of the cell's store up to which every write is copied.
	Revision int64
	// Proven is the last moment for which every backup cell has proved that it had everything that the cell had;
	// zero if there is none.
	Proven time.Time
	// Replaced means that the store of the cell does not have what its backup has, which is kept.
	Replaced bool
	// Problem is why nothing is copied although both cells answer.
	Problem problem
	// ProblemIn is the backup cell that nothing is copied to for that reason, the first if there are several; empty if it is all of them.
	ProblemIn string
	// Unread is since when the cell cannot be read; zero if it can.
	Unread time.Time
	// Silent are the backup cells that do not answer, and SilentSince is since when the first of them does not.
	Silent      []string
	SilentSince time.Time
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
	lagSeconds.Reset()
	now := time.Now()
	for name, s := range c.sources {
		targets, begun, unread := s.states()
		state := State{Complete: begun, Alone: begun && len(targets) == 0, Unread: unread}
		if failure, failing := c.failing[name]; failing && !begun {
			state.addFailure(failure)
		}
		proven := begun
		for target, pair := range targets {
			if pair.problem != (problem{}) && (state.ProblemIn == "" || target < state.ProblemIn) {
				state.Problem, state.ProblemIn = pair.problem, target
			}
			if !pair.silent.IsZero() {
				state.Silent = append(state.Silent, target)
				state.SilentSince = earlier(state.SilentSince, pair.silent)
			}
			if proven = proven && !pair.proven.IsZero(); proven {
				state.Proven = earlier(state.Proven, pair.proven)
			}
			if !pair.proven.IsZero() {
				lagSeconds.WithLabelValues(name, target).Set(now.Sub(pair.proven).Seconds())
			}
			if !pair.synced {
				state.Complete = false
				state.Waiting = append(state.Waiting, target)
			}
			if state.Revision == 0 || pair.written < state.Revision {
				state.Revision = pair.written
			}
			state.Pending += pair.pending
			state.Oldest = earlier(state.Oldest, pair.oldest)
			pendingKeys.WithLabelValues(name, target).Set(float64(pair.pending))
		}
		if !proven {
			state.Proven = time.Time{}
		}
		slices.Sort(state.Waiting)
		slices.Sort(state.Silent)
		all[name] = state
	}
	return all
}

// statesAndFailed returns the states of all backups, and of the cells that have failed.
func (c *Controller) statesAndFailed() map[string]State {
	all := c.States()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.topology == nil {
		return all
	}
	for i := range c.topology.Cells() {
		if cell := c.topology.Cell(slots.Index(i)); cell.State == slots.Failed {
			all[cell.Name] = State{Failed: true}
		}
	}
	return all
}

// earlier returns the earlier of two times. The zero time does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// failure is why the source of a cell cannot begin.
type failure struct {
	since time.Time
	cell  string // the one that could not be reached
	// replaced is set if the store of the cell is not the one that was backed up.
	replaced bool
	problem  problem
}

// addFailure adds why the source has not begun.
func (s *State) addFailure(f failure) {
	s.Replaced, s.Problem, s.ProblemIn = f.replaced, f.problem, ""
	if f.replaced || f.problem != (problem{}) {
		return
	}
	if f.cell == "" {
		s.Unread = earlier(s.Unread, f.since)
		return
	}
	s.Silent, s.SilentSince = append(s.Silent, f.cell), earlier(s.SilentSince, f.since)
}
