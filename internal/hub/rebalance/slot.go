package rebalance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// retryAfter is how long a slot waits after something went wrong with it.
const retryAfter = 500 * time.Millisecond

// unit moves a slot. Unless another mover has taken over, what goes wrong is tried again.
func (m *Mover) unit(ctx context.Context, slot slots.Slot) error {
	// What an attempt has begun with may have left its cell, perhaps without anybody having been told: the next one looks at it again.
	begun := map[located]struct{}{}
	for {
		err := m.slot(ctx, slot, begun)
		switch {
		case err == nil:
			if objects, _ := m.left(slot); len(objects) == 0 && m.Moved != nil {
				m.Moved(slot)
			}
			return nil
		case errors.Is(err, cellstore.ErrDeposed), errors.Is(err, errStopped), ctx.Err() != nil:
			return err
		}
		failures.Inc()
		klog.FromContext(ctx).Error(err, "Moving the objects of a slot failed and will be tried again", "slot", slot)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryAfter):
		}
	}
}

// located is a key in a cell.
type located struct{ cell, key string }

// left returns what has not left yet in any cell, with the cell.
func (m *Mover) left(slot slots.Slot) (objects, works []located) {
	for name, x := range m.indexes {
		keys, workKeys := x.remaining(slot)
		for _, key := range keys {
			objects = append(objects, located{name, key})
		}
		for _, key := range workKeys {
			works = append(works, located{name, key})
		}
	}
	return objects, works
}

// slot moves all objects of a slot together: the engine of the new cell sees none of them in use before it has all of them.
func (m *Mover) slot(ctx context.Context, slot slots.Slot, begun map[located]struct{}) error {
	target := m.Topology.Name(m.Topology.Route(slot).New)
	passengers := map[located]*passenger{}
	// 1. Freeze and copy everything, also what turns up meanwhile: from the freeze on the old engine makes nothing new.
	for {
		added, err := m.board(ctx, slot, target, passengers, begun)
		if err != nil {
			return err
		}
		if !added {
			break
		}
	}
	// 2. The old cell's Works stand back from now on.
	_, works := m.left(slot)
	if err := m.markWorks(ctx, works); err != nil {
		return err
	}
	// 3. Hand over, and only then put to use.
	all := make([]*passenger, 0, len(passengers))
	for _, p := range passengers {
		all = append(all, p)
	}
	if err := m.each(ctx, all, func(ctx context.Context, p *passenger) error {
		return p.advance(ctx, func(s Step) bool { return s != Activate })
	}); err != nil {
		return err
	}
	bindings := slices.DeleteFunc(slices.Clone(all), func(p *passenger) bool { return !p.isBinding() })
	others := slices.DeleteFunc(slices.Clone(all), func(p *passenger) bool { return p.isBinding() })
	for _, batch := range [][]*passenger{bindings, others} {
		if err := m.each(ctx, batch, func(ctx context.Context, p *passenger) error {
			return p.advance(ctx, func(Step) bool { return true })
		}); err != nil {
			return err
		}
	}
	return m.arrived(ctx, slot, all)
}

// board freezes and copies what is in the old cells and not among the passengers yet. It reports whether there was anything.
func (m *Mover) board(ctx context.Context, slot slots.Slot, target string, passengers map[located]*passenger, begun map[located]struct{}) (bool, error) {
	waiting, _ := m.left(slot)
	waiting = slices.AppendSeq(waiting, maps.Keys(begun))
	for _, key := range m.indexes[target].inactive(slot) {
		// A copy that a former mover has left inactive: its original may have gone.
		relative, _ := m.Stores[target].Relative(key)
		source := m.Topology.Name(m.Topology.Route(slot).Old)
		waiting = append(waiting, located{source, m.Stores[source].Key(relative)})
	}
	var boarding []*passenger
	for _, l := range waiting {
		if passengers[l] != nil || l.cell == target {
			continue
		}
		relative, _ := m.Stores[l.cell].Relative(l.key)
		p := &passenger{m: m, relative: relative, old: side{gathered: m.stores[l.cell]}, new: side{gathered: m.stores[target]}}
		passengers[l], begun[l] = p, struct{}{}
		boarding = append(boarding, p)
	}
	if len(boarding) == 0 {
		return false, nil
	}
	err := m.each(ctx, boarding, func(ctx context.Context, p *passenger) error {
		if err := p.load(ctx); err != nil {
			return err
		}
		return p.advance(ctx, Step.beforeCommit)
	})
	if err != nil {
		return false, err
	}
	for _, p := range boarding {
		if err := m.indexes[p.old.store.Cell].until(ctx, p.old.kv.ModRevision); err != nil {
			return false, err
		}
	}
	return true, nil
}

// arrived waits until the indexes know what this slot's commits did, so that nobody looks at it again because of them.
func (m *Mover) arrived(ctx context.Context, slot slots.Slot, all []*passenger) error {
	for _, p := range all {
		if err := m.indexes[p.old.store.Cell].until(ctx, p.old.kv.ModRevision); err != nil {
			return err
		}
	}
	m.indexes[m.Topology.Name(m.Topology.Route(slot).New)].takeCopies(slot)
	m.mu.Lock()
	delete(m.pending, slot)
	m.mu.Unlock()
	// Whatever is in the index by now is seen here, and whatever comes later says so itself.
	if objects, works := m.left(slot); len(objects)+len(works) > 0 {
		m.touch(slot)
	}
	return nil
}

// each does something with several objects at once.
func (m *Mover) each(ctx context.Context, all []*passenger, do func(context.Context, *passenger) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(m.pace.now())
	for _, p := range all {
		group.Go(func() error {
			if err := do(ctx, p); err != nil {
				return fmt.Errorf("moving %s from cell %s to cell %s: %w", p.relative, p.old.store.Cell, p.new.store.Cell, err)
			}
			return nil
		})
	}
	return group.Wait()
}
