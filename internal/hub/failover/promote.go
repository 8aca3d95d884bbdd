package failover

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
	"github.com/cellplane/cellplane/internal/lockedset"
	"github.com/cellplane/cellplane/internal/slots"
)

// Promotion turns the copies of a failed cell into objects.
//
// As at the end of a move, the objects of a workload are stored frozen, then bindings are activated, then templates:
// see handover.Slot for why.
type Promotion struct {
	// Topology in which the cell has failed.
	Topology *slots.Map
	// Failed is the name of the cell.
	Failed string
	// Stores of the other cells, by name.
	Stores map[string]*cellstore.Store
	// Term of the hub manager.
	Term cellstore.Term
}

// Promoted is the result of a promotion.
type Promoted struct {
	// Objects counts the objects that were promoted, without those of earlier attempts.
	Objects int
	// Contested are copies whose key another object has. They stay copies.
	Contested []string
	// Uncovered counts the slots of the cell that no surviving cell has ever had completely: their backup cell has
	// failed too, or was still being populated.
	Uncovered int
}

func (p *Promoted) add(other Promoted) {
	p.Objects += other.Objects
	p.Contested = append(p.Contested, other.Contested...)
}

// Run promotes everything, in all backup cells at once. Requests for the slots wait until it is done.
func (p *Promotion) Run(ctx context.Context) (Promoted, error) {
	done, err := p.run(ctx)
	if err != nil {
		return done, fmt.Errorf("promoting the backup of cell %s: %w", p.Failed, err)
	}
	return done, nil
}

func (p *Promotion) run(ctx context.Context) (Promoted, error) {
	cells, err := p.cells()
	if err != nil {
		return Promoted{}, err
	}
	// 1. Find stale copies of earlier moves, and remove Works that engines would ignore.
	all := make([]*staleObjects, len(cells))
	var bound lockedset.Set[slots.Slot]
	if err := everywhere(ctx, cells, func(ctx context.Context, i int, cell *cellstore.Store) (err error) {
		if all[i], err = p.findStale(ctx, cell); err != nil {
			return err
		}
		for slot := range all[i].bound {
			bound.Add(slot)
		}
		return removeKeys(ctx, cell, p.Term, all[i].works)
	}); err != nil {
		return Promoted{}, err
	}
	// 2. Store what has a copy, or a stale copy that is newer. Bindings come first, to know which templates have one.
	received, err := backup.ReceivedBy(ctx, p.Stores, p.Failed)
	if err != nil {
		return Promoted{}, err
	}
	var done Promoted
	owned, err := p.owned()
	if err != nil {
		return done, err
	}
	done.Uncovered = uncovered(owned, received)
	if done.Objects, err = p.restore(ctx, all, owned, received, &bound); err != nil {
		return done, err
	}
	for _, part := range []func(relative string) bool{isBinding, isOther} {
		var mu sync.Mutex
		err := everywhere(ctx, cells, func(ctx context.Context, i int, cell *cellstore.Store) error {
			promoted, err := p.promoteAt(ctx, cell, all[i].stale, owned, received, part, &bound)
			mu.Lock()
			defer mu.Unlock()
			done.add(promoted)
			return err
		})
		if err != nil {
			return done, err
		}
	}
	// 3. Activate everything. Where a change is in progress, the mover does that.
	for _, part := range []func(relative string) bool{isBinding, isOther} {
		if err := everywhere(ctx, cells, func(ctx context.Context, _ int, cell *cellstore.Store) error { return p.activate(ctx, cell, part) }); err != nil {
			return done, err
		}
	}
	// 4. Remove stale copies that were not replaced: their objects were deleted in the failed cell.
	return done, everywhere(ctx, cells, func(ctx context.Context, _ int, cell *cellstore.Store) error { return p.sweep(ctx, cell) })
}

// owned returns which slots the failed cell may have owned, before or after a change under way, by which it could have joined, left, or changed its
// weight. Objects of all other slots have moved on from it.
func (p *Promotion) owned() (func(slots.Slot) bool, error) {
	cells := make([]slots.Cell, p.Topology.Cells())
	for i := range cells {
		if cells[i] = p.Topology.Cell(slots.Index(i)); cells[i].Name == p.Failed {
			cells[i].State, cells[i].Weight, cells[i].TargetWeight = slots.Normal, max(cells[i].Weight, cells[i].TargetWeight), 0
		}
	}
	topology, err := slots.Compile(p.Topology.Epoch(), cells)
	if err != nil {
		return nil, err
	}
	cell, _ := topology.Index(p.Failed)
	return func(slot slots.Slot) bool {
		route := topology.Route(slot)
		return route.Old == cell || route.New == cell
	}, nil
}

// uncovered counts the slots of the failed cell that no surviving cell has completely.
func uncovered(owned func(slots.Slot) bool, received backup.Received) int {
	count := 0
	for slot := range slots.Slot(slots.Count) {
		if owned(slot) && received.Through(slot) == 0 {
			count++
		}
	}
	return count
}

// withState returns a topology of an epoch in which one cell has another state.
func withState(epoch int64, topology *slots.Map, name string, state slots.State) (*slots.Map, error) {
	cells := make([]slots.Cell, topology.Cells())
	for i := range cells {
		cells[i] = topology.Cell(slots.Index(i))
		if cells[i].Name == name {
			cells[i].State = state
		}
	}
	return slots.Compile(epoch, cells)
}

func isBinding(relative string) bool { return handover.KindOf(relative) == handover.Binding }
func isOther(relative string) bool   { return !isBinding(relative) }

// cells returns the stores of the surviving cells.
func (p *Promotion) cells() ([]*cellstore.Store, error) {
	var all []*cellstore.Store
	for i := range p.Topology.Cells() {
		cell := p.Topology.Cell(slots.Index(i))
		if cell.State == slots.Failed {
			continue
		}
		store := p.Stores[cell.Name]
		if store == nil {
			return nil, fmt.Errorf("the store of cell %s cannot be reached", cell.Name)
		}
		all = append(all, store)
	}
	return all, nil
}

// everywhere does something in several cells at once.
func everywhere(ctx context.Context, cells []*cellstore.Store, do func(ctx context.Context, i int, cell *cellstore.Store) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, cell := range cells {
		group.Go(func() error { return do(ctx, i, cell) })
	}
	return group.Wait()
}

// activate activates frozen objects of a cell, in slots that do not move.
func (p *Promotion) activate(ctx context.Context, cell *cellstore.Store, part func(string) bool) error {
	index, _ := p.Topology.Index(cell.Cell)
	transactions, ctx := newTransactions(ctx)
	err := func() error {
		for kv, err := range cell.Range(ctx, cell.Prefix(), 0) {
			if err != nil {
				return err
			}
			relative, _ := cell.Relative(kv.Key)
			if !part(relative) || !bytes.Contains(kv.Value, statusLabel) {
				continue
			}
			object, err := cellstore.Parse(kv.Value)
			if err != nil {
				continue // no API object
			}
			class, slot := cellstore.Classify(object)
			route := p.Topology.Route(slot)
			if !class.Federated() || statusOfObject(object) != handover.Frozen || route.Moving() || route.New != index {
				continue
			}
			value, err := unmarked(kv.Value)
			if err != nil {
				return fmt.Errorf("activating %s in cell %s: %w", object, cell.Cell, err)
			}
			transactions.Go(func() error {
				// Only the hub manager writes frozen objects, and it does nothing else meanwhile.
				_, err := cell.Txn(ctx, p.Term, []clientv3.Cmp{cellstore.Unchanged(kv.Key, kv.ModRevision)}, cellstore.Put(kv.Key, value))
				return err
			})
		}
		return nil
	}()
	return cmp.Or(transactions.Wait(), err)
}
