package rebalance

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
	"github.com/cellplane/cellplane/internal/slots"
)

// Mover moves the objects of one change. All state that must survive a crash is on the objects, so another mover with
// a higher term can continue at any time.
type Mover struct {
	// Topology of the change.
	Topology *slots.Map
	// Stores of all cells that take part, by name. Their terms have been raised.
	Stores map[string]*cellstore.Store
	// Term of the hub manager.
	Term cellstore.Term
	// Window is the maximum number of objects that move at once. Fewer do if the stores become slow.
	Window int
	// Verify reads a copy through the API server of its cell and returns an error if it differs from what the
	// original's cell serves.
	Verify func(ctx context.Context, from, to string, object *cellstore.Object, stored cellstore.KV) error
	// Moved, if not nil, is called with each slot whose objects have all moved, in any order.
	Moved func(slots.Slot)
	// Written, if not nil, is called after each transaction. Its error stands for a lost answer; errStopped ends the
	// run.
	Written func(step handover.Step, cell, key string) error

	indexes map[string]*index
	stores  map[string]*sharedStore
	pace    *pace

	mu      sync.Mutex
	pending map[slots.Slot]struct{}
	busy    map[slots.Slot]struct{}
	wake    chan struct{}
}

// Run moves everything and returns when nothing remains to be moved. If it fails, the next run finishes what it was
// doing.
func (m *Mover) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.pace == nil {
		m.pace = newPace(m.Window)
	}
	m.mu.Unlock()
	m.pending, m.busy, m.wake = map[slots.Slot]struct{}{}, map[slots.Slot]struct{}{}, make(chan struct{}, 1)
	m.stores = map[string]*sharedStore{}
	defer func() {
		for _, store := range m.stores {
			store.close()
		}
	}()
	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for name, store := range m.Stores {
		m.stores[name] = newSharedStore(ctx, store, m.Term, m.pace.observe)
	}
	if err := m.populate(ctx); err != nil {
		return err
	}
	for _, x := range m.indexes {
		if x.loses {
			group.Go(func() error { return x.watch(ctx) })
		}
	}
	group.Go(func() error {
		defer cancel()
		return m.move(ctx)
	})
	return group.Wait()
}

// populate reads all cells that take part. Slots without objects have moved already.
func (m *Mover) populate(ctx context.Context) error {
	m.mu.Lock()
	m.indexes = map[string]*index{}
	m.mu.Unlock()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(cellstore.Passes())
	for name, store := range m.Stores {
		cell, found := m.Topology.Index(name)
		if !found {
			continue
		}
		x := newIndex(store)
		x.leaves = func(slot slots.Slot) bool { return m.leaves(cell, slot) }
		x.arrives = func(slot slots.Slot) bool { r := m.Topology.Route(slot); return r.Moving() && r.New == cell }
		x.loses = m.loses(cell)
		x.touched = m.touch
		m.mu.Lock()
		m.indexes[name] = x
		m.mu.Unlock()
		group.Go(func() error { return x.populate(ctx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for slot := range slots.Slot(slots.Count) {
		m.mu.Lock()
		_, pending := m.pending[slot]
		m.mu.Unlock()
		if m.Topology.Route(slot).Moving() && !pending && m.Moved != nil {
			m.Moved(slot)
		}
	}
	return nil
}

// leaves reports whether objects of a slot leave a cell. A cell that is drained keeps nothing, not even objects of
// slots it does not own.
func (m *Mover) leaves(cell slots.Index, slot slots.Slot) bool {
	route := m.Topology.Route(slot)
	return route.New != cell && (route.Old == cell || m.Topology.Cell(cell).State == slots.Out)
}

// loses reports whether a cell loses slots.
func (m *Mover) loses(cell slots.Index) bool {
	for slot := range slots.Slot(slots.Count) {
		if m.leaves(cell, slot) {
			return true
		}
	}
	return false
}

// Progress returns how many objects have moved and how many there are to move.
func (m *Mover) Progress() (moved, total int64) {
	for _, x := range m.sources() {
		left, all, _ := x.count()
		moved, total = moved+left, total+all
	}
	return moved, total
}

// UnderWay returns how many objects are moving now.
func (m *Mover) UnderWay() int64 {
	m.mu.Lock()
	pace := m.pace
	m.mu.Unlock()
	if pace == nil {
		return 0
	}
	return int64(pace.inUse())
}

// Least returns, for each cell that has lost objects, the revision of its last commit.
func (m *Mover) Least() map[string]int64 {
	least := map[string]int64{}
	for name, x := range m.sources() {
		if _, _, last := x.count(); last > 0 {
			least[name] = last
		}
	}
	return least
}

func (m *Mover) sources() map[string]*index {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.indexes
}

// touch queues a slot that has something to move.
func (m *Mover) touch(slot slots.Slot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending[slot] = struct{}{}
	m.notify()
}

func (m *Mover) notify() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take returns a queued slot. If there is none, idle reports whether no slot is moving either.
func (m *Mover) take() (slot slots.Slot, found, idle bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for slot := range m.pending {
		if _, busy := m.busy[slot]; !busy {
			delete(m.pending, slot)
			m.busy[slot] = struct{}{}
			return slot, true, false
		}
	}
	return 0, false, len(m.busy) == 0
}

func (m *Mover) release(slot slots.Slot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.busy, slot)
	m.notify()
}

// move moves slots until the stores hold nothing more to move.
func (m *Mover) move(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for {
		slot, found, idle := m.take()
		switch {
		case found:
			weight := m.weight(slot)
			if err := m.pace.acquire(ctx, weight); err != nil {
				return errors.Join(group.Wait(), err)
			}
			group.Go(func() error {
				defer m.pace.release(weight)
				defer m.release(slot)
				return m.moveSlot(ctx, slot)
			})
			continue
		case idle:
			finished, err := m.finished(ctx)
			if err != nil {
				return errors.Join(group.Wait(), err)
			}
			if finished {
				return group.Wait()
			}
			continue
		}
		select {
		case <-ctx.Done():
			return errors.Join(group.Wait(), ctx.Err())
		case <-m.wake:
		}
	}
}

// finished brings the indexes up to date and reports whether nothing remains: an engine may have stored a binding
// meanwhile.
func (m *Mover) finished(ctx context.Context) (bool, error) {
	for _, x := range m.indexes {
		if !x.loses {
			continue
		}
		if err := x.catchUp(ctx); err != nil {
			return false, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pending) == 0, nil
}

// weight returns how many objects of a slot have to move.
func (m *Mover) weight(slot slots.Slot) int {
	return max(federated(m.remaining(slot)), 1)
}
