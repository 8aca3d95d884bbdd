package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/slots"
)

// askInterval is how often a watch is asked for its progress while somebody waits for it. etcd does not answer while
// the watch is behind.
const askInterval = 20 * time.Millisecond

// WaitCopied waits until every backup cell of a cell has confirmed its copies up to a revision of the cell's store.
//
// The sources of failed cells have ended. If the topology says that the cell has failed, what is missing is copied
// here, as long as its store answers, and nothing is copied from it any more when WaitCopied returns. Nobody may
// promote the copies meanwhile. It fails with ErrReplaced if the store does not have what its backup has.
func (c *Controller) WaitCopied(ctx context.Context, source string, revision int64) error {
	c.prepare()
	if err := c.waitCopied(ctx, source, revision); err != nil {
		return fmt.Errorf("copying cell %s up to revision %d: %w", source, revision, err)
	}
	return nil
}

func (c *Controller) waitCopied(ctx context.Context, name string, revision int64) error {
	ticker := time.NewTicker(askInterval)
	defer ticker.Stop()
	for {
		changed := c.progressed.changed()
		topology, s := c.sourceOf(name)
		if topology == nil {
			return errors.New("the topology is not known yet")
		}
		cell, member := topology.Index(name)
		if !member {
			return errors.New("it is not in the topology")
		}
		var behind []string
		switch failed := topology.Cell(cell).State == slots.Failed; {
		case failed && s == nil:
			return c.copyTail(ctx, topology, cell, revision)
		case failed || s == nil || s.places == nil || s.epoch != topology.Epoch():
			// The sources of the former topology are ending, or those of this one begin.
		default:
			if behind = s.behind(revision); len(behind) == 0 {
				return nil
			}
			s.hurry()
		}
		select {
		case <-ctx.Done():
			return waitError(ctx, behind)
		case <-changed:
		case <-ticker.C:
		}
	}
}

// Stop waits until nothing is copied from a cell that has failed by the topology, and has its backup cells refuse what was sent before. Copies do
// not change any more then, until the cell returns.
func (c *Controller) Stop(ctx context.Context, source string) error {
	c.prepare()
	for {
		changed := c.progressed.changed()
		topology, s := c.sourceOf(source)
		if topology != nil {
			if cell, member := topology.Index(source); member && topology.Cell(cell).State == slots.Failed && s == nil {
				return c.seal(ctx, topology, cell)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until nothing is copied from cell %s: %w", source, ctx.Err())
		case <-changed:
		}
	}
}

// seal has the backup cells of a cell refuse everything that was sent before.
func (c *Controller) seal(ctx context.Context, topology *slots.Map, cell slots.Index) error {
	for i := range topology.Cells() {
		other := topology.Cell(slots.Index(i))
		if slots.Index(i) == cell || other.State == slots.Failed {
			continue
		}
		target, err := c.Open(ctx, other.Name)
		if err != nil {
			return unreachable{other.Name, err}
		}
		if err := newPair(topology.Name(cell), target, c.Term, 0).claim(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sourceOf returns the topology, and the source of a cell; nil if none runs.
func (c *Controller) sourceOf(name string) (*slots.Map, *source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.topology, c.sources[name]
}

// waitError returns why a wait ended.
func waitError(ctx context.Context, behind []string) error {
	if len(behind) == 0 {
		return ctx.Err()
	}
	return fmt.Errorf("backup cells %v are behind: %w", behind, ctx.Err())
}

// behind returns the backup cells that have not confirmed everything up to a revision.
func (s *source) behind(revision int64) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for i, target := range s.targets {
		if s.scope(i) == (slotSet{}) {
			continue // it has no copies of the cell
		}
		if p := s.pairs[i]; p == nil || p.state().written < revision {
			names = append(names, target.Cell)
		}
	}
	return names
}

// hurry has everything copied at once.
func (s *source) hurry() {
	s.ask()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pairs {
		p.hurry()
	}
}

// ask has the watch request its progress at once.
func (s *source) ask() {
	select {
	case s.asked <- struct{}{}:
	default:
	}
}

// copyTail copies what has been stored in a failed cell since its source ended.
func (c *Controller) copyTail(ctx context.Context, topology *slots.Map, cell slots.Index, revision int64) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case c.tails <- struct{}{}:
	}
	defer func() { <-c.tails }()

	store, targets, err := c.open(ctx, topology, cell)
	if err != nil {
		return err
	}
	identity, err := identityOf(ctx, store)
	if err != nil {
		return err
	}
	received := map[slots.Index]receipt{}
	for i, target := range targets {
		// Requests sent earlier must not be executed after this.
		if err := newPair(store.Cell, target, c.Term, 0).claim(ctx); err != nil {
			return err
		}
		if received[i], err = receivedBy(ctx, target, store.Cell); err != nil {
			return err
		}
		if err := received[i].check(identity, revision); err != nil {
			return err
		}
	}
	c.mu.Lock()
	served := c.served[store.Cell]
	c.mu.Unlock()
	places, err := lastPlacements(topology, served, cell, received)
	if err != nil {
		return err
	}
	s := c.newSource(topology.Epoch(), places, store, targets)
	s.identity, s.resume = identity, resumable(places, received)
	err = s.runUntil(ctx, revision)
	if errors.Is(err, rpctypes.ErrCompacted) && s.resume != nil {
		klog.FromContext(ctx).Info("the store of a failed cell has been compacted, comparing its backup", "cell", store.Cell)
		s = c.newSource(topology.Epoch(), places, store, targets)
		err = s.runUntil(ctx, revision)
	}
	if err != nil {
		return err
	}
	for _, target := range targets { // as above
		if err := newPair(store.Cell, target, c.Term, 0).claim(ctx); err != nil {
			return err
		}
	}
	return nil
}

// runUntil runs a source until all backup cells have everything up to a revision.
func (s *source) runUntil(ctx context.Context, revision int64) error {
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.run(running) }()
	ticker := time.NewTicker(askInterval)
	defer ticker.Stop()
	for {
		changed := s.progressed.changed()
		behind := s.behind(revision)
		if len(behind) == 0 {
			cancel()
			<-ended
			return nil
		}
		s.hurry()
		select {
		case err := <-ended:
			cancel()
			if err == nil {
				err = waitError(ctx, behind)
			}
			return err
		case <-changed:
		case <-ticker.C:
		}
	}
}

// servedBy returns the last topologies in which the cells had not failed.
func servedBy(topology *slots.Map, before map[string]*slots.Map) map[string]*slots.Map {
	served := map[string]*slots.Map{}
	for i := range topology.Cells() {
		cell := topology.Cell(slots.Index(i))
		switch {
		case cell.State != slots.Failed:
			served[cell.Name] = topology
		case before[cell.Name] != nil:
			served[cell.Name] = before[cell.Name]
		}
	}
	return served
}

// lastPlacements returns where the copies of a failed cell belong: where the last topology had them in which it had
// not failed. A new hub manager does not know that. It leaves copies where they have been received completely, and
// assumes for all other slots that the cell was not joining or leaving.
func lastPlacements(topology, served *slots.Map, cell slots.Index, received map[slots.Index]receipt) (*placements, error) {
	name := topology.Name(cell)
	known := served != nil
	if !known {
		cells := make([]slots.Cell, topology.Cells())
		for i := range cells {
			if cells[i] = topology.Cell(slots.Index(i)); cells[i].Name == name {
				cells[i].State = slots.Normal
			}
		}
		var err error
		if served, err = slots.Compile(topology.Epoch(), cells); err != nil {
			return nil, err
		}
	}
	was, _ := served.Index(name)
	places := placementsOf(served, was)
	for slot, place := range places {
		route := topology.Route(slots.Slot(slot))
		places[slot] = slots.None
		if place != slots.None {
			if i, member := topology.Index(served.Name(place)); member && topology.Cell(i).State != slots.Failed {
				places[slot] = i
			}
		}
		if known {
			continue
		}
		for _, i := range []slots.Index{route.Old, route.New} { // the new owner is preferred
			if r, found := received[i]; found && r.through != 0 && r.scope.has(slots.Slot(slot)) {
				places[slot] = i
			}
		}
	}
	return places, nil
}

// resumable returns the revisions up to which all backup cells have received exactly what belongs there; nil if one
// has to be compared.
func resumable(places *placements, received map[slots.Index]receipt) map[slots.Index]int64 {
	revisions := map[slots.Index]int64{}
	for i, r := range received {
		if r.through == 0 || r.scope != scopeIn(places, i) {
			return nil
		}
		revisions[i] = r.through
	}
	return revisions
}
