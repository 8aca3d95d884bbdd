package failover

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
	"github.com/cellplane/cellplane/internal/slots"
)

// Promotion brings the copies of a failed cell to life.
//
// A workload comes to life as it does when it moves: its objects are stored frozen, then bindings are put to use and after them
// templates. An engine that saw a template without its binding would place it anew, and one that saw a binding without its template
// would remove it from the members.
type Promotion struct {
	// Topology is the one in which the cell has failed.
	Topology *slots.Map
	// Failed is the name of the cell.
	Failed string
	// Stores are those of the other cells, by name.
	Stores map[string]*cellstore.Store
	// Term is that of the hub manager.
	Term cellstore.Term
}

// Promoted counts what a promotion did.
type Promoted struct {
	// Objects are those that came to life now. What an earlier attempt promoted does not count.
	Objects int
	// Contested are copies whose place was taken by another object. They stay as copies.
	Contested []string
	// Uncovered counts the slots of the cell of which nobody who is left has ever had all objects: their keeper has failed too, or
	// was about to get its copies.
	Uncovered int
}

func (p *Promoted) add(other Promoted) {
	p.Objects += other.Objects
	p.Contested = append(p.Contested, other.Contested...)
}

// bindingsPrefix begins the keys of bindings.
const bindingsPrefix = "work.karmada.io/resourcebindings/"

// Run promotes everything, all keepers at once. Requests for the slots have to wait until it is done.
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
	// 1. What moves have left behind where the slots are now.
	all := make([]*leftovers, len(cells))
	var bound slotSet
	if err := everywhere(ctx, cells, func(ctx context.Context, i int, cell *cellstore.Store) (err error) {
		if all[i], err = p.survey(ctx, cell); err != nil {
			return err
		}
		for slot := range all[i].bound {
			bound.add(slot)
		}
		return discard(ctx, cell, p.Term, all[i].works)
	}); err != nil {
		return Promoted{}, err
	}
	// 2. Whatever has a copy, or is left somewhere, is stored: bindings first, to know which templates have one.
	received, err := backup.ReceivedBy(ctx, p.Stores, p.Failed)
	if err != nil {
		return Promoted{}, err
	}
	var done Promoted
	if done.Uncovered, err = p.uncovered(received); err != nil {
		return done, err
	}
	if done.Objects, err = p.revive(ctx, all, received, &bound); err != nil {
		return done, err
	}
	for _, part := range []func(relative string) bool{isBinding, isOther} {
		var mu sync.Mutex
		err := everywhere(ctx, cells, func(ctx context.Context, i int, cell *cellstore.Store) error {
			promoted, err := p.at(ctx, cell, all[i].stale, part, &bound)
			mu.Lock()
			defer mu.Unlock()
			done.add(promoted)
			return err
		})
		if err != nil {
			return done, err
		}
	}
	// 3. Everything is there and is put to use. Where a change goes on, the mover does that.
	for _, part := range []func(relative string) bool{isBinding, isOther} {
		if err := everywhere(ctx, cells, func(ctx context.Context, _ int, cell *cellstore.Store) error { return p.thaw(ctx, cell, part) }); err != nil {
			return done, err
		}
	}
	// 4. What is still there from former times was deleted in the failed cell.
	return done, everywhere(ctx, cells, func(ctx context.Context, _ int, cell *cellstore.Store) error { return p.sweep(ctx, cell) })
}

// uncovered counts the slots that the cell would own had it not failed and of which nobody has all copies.
func (p *Promotion) uncovered(received backup.Received) (int, error) {
	topology, err := withState(p.Topology, p.Failed, slots.Normal)
	if err != nil {
		return 0, err
	}
	cell, _ := topology.Index(p.Failed)
	count := 0
	for slot := range slots.Slot(slots.Count) {
		if route := topology.Route(slot); (route.Old == cell || route.New == cell) && received.Through(slot) == 0 {
			count++
		}
	}
	return count, nil
}

// withState returns a topology with another state of one of its cells.
func withState(topology *slots.Map, name string, state slots.State) (*slots.Map, error) {
	cells := make([]slots.Cell, topology.Cells())
	for i := range cells {
		cells[i] = topology.Cell(slots.Index(i))
		if cells[i].Name == name {
			cells[i].State = state
		}
	}
	return slots.Compile(topology.Epoch(), cells)
}

func isBinding(relative string) bool { return strings.HasPrefix(relative, bindingsPrefix) }
func isOther(relative string) bool   { return !isBinding(relative) }

// cells returns the stores of all cells that are left.
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

// slotSet is a set of slots that several keepers fill.
type slotSet struct {
	mu  sync.Mutex
	set map[slots.Slot]struct{}
}

func (s *slotSet) add(slot slots.Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		s.set = map[slots.Slot]struct{}{}
	}
	s.set[slot] = struct{}{}
}

func (s *slotSet) has(slot slots.Slot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.set[slot]
	return found
}

// candidate is a copy that is to come to life.
type candidate struct {
	copy     cellstore.KV
	relative string
	slot     slots.Slot
	frozen   bool   // it was made of a frozen object
	waits    bool   // it is stored frozen, and put to use later
	value    []byte // what it becomes
}

// at promotes a part of what one keeper has. Stale objects may be replaced.
func (p *Promotion) at(ctx context.Context, keeper *cellstore.Store, stale map[string]int64, part func(string) bool, bound *slotSet) (Promoted, error) {
	var mu sync.Mutex
	var done Promoted
	transactions, ctx := manyAtOnce(ctx)
	begin := func(promote func() (Promoted, error)) {
		transactions.Go(func() error {
			result, err := promote()
			mu.Lock()
			defer mu.Unlock()
			done.add(result)
			return err
		})
	}
	var frozen []candidate
	size := 0
	flush := func() {
		together := frozen
		frozen, size = nil, 0
		begin(func() (Promoted, error) { return p.promote(ctx, keeper, stale, together...) })
	}
	index, _ := p.Topology.Index(keeper.Cell)
	err := p.candidates(ctx, keeper, part, bound, func(c candidate) {
		switch route := p.Topology.Route(c.slot); {
		case route.Moving() || route.New != index:
			begin(func() (Promoted, error) { return p.promoteOne(ctx, keeper, c) })
		case !c.waits:
			begin(func() (Promoted, error) { return p.promote(ctx, keeper, stale, c) })
		default:
			if len(frozen) == batch || (len(frozen) > 0 && size+len(c.value) > batchBytes) {
				flush()
			}
			frozen, size = append(frozen, c), size+len(c.value)
		}
	})
	flush()
	err = cmp.Or(transactions.Wait(), err)
	return done, err
}

// candidates reads a part of what a keeper has.
func (p *Promotion) candidates(ctx context.Context, keeper *cellstore.Store, part func(string) bool, bound *slotSet, visit func(candidate)) error {
	prefix := backup.Prefix(p.Failed)
	for kv, err := range keeper.Range(ctx, prefix, 0) {
		if err != nil {
			return err
		}
		relative := strings.TrimPrefix(kv.Key, prefix)
		if !part(relative) {
			continue
		}
		c, err := p.candidate(kv, relative, bound)
		if err != nil {
			return fmt.Errorf("the copy %s in cell %s: %w", kv.Key, keeper.Cell, err)
		}
		visit(c)
	}
	return nil
}

// candidate reads a copy. Templates whose slot has bindings wait for these.
func (p *Promotion) candidate(kv cellstore.KV, relative string, bound *slotSet) (candidate, error) {
	object, err := cellstore.Parse(kv.Value)
	if err != nil {
		return candidate{}, err
	}
	_, slot := cellstore.Classify(object)
	c := candidate{copy: kv, relative: relative, slot: slot, frozen: standing(object) == handover.Frozen}
	if isBinding(relative) {
		bound.add(slot)
	}
	if c.waits = bound.has(slot) || p.Topology.Route(slot).Moving(); c.waits {
		c.value, err = frozen(kv.Value)
	} else {
		c.value, err = unmarked(kv.Value)
	}
	return c, err
}

// promote promotes copies in one transaction, or one by one if the place of any is taken.
func (p *Promotion) promote(ctx context.Context, keeper *cellstore.Store, stale map[string]int64, candidates ...candidate) (Promoted, error) {
	if len(candidates) == 0 {
		return Promoted{}, nil
	}
	conditions := make([]clientv3.Cmp, 0, 2*len(candidates))
	operations := make([]clientv3.Op, 0, 2*len(candidates))
	for _, c := range candidates {
		place := keeper.Key(c.relative)
		conditions = append(conditions, cellstore.Unchanged(place, stale[place]), cellstore.Unchanged(c.copy.Key, c.copy.ModRevision))
		operations = append(operations, cellstore.Put(place, c.value), cellstore.Delete(c.copy.Key))
	}
	_, err := keeper.Txn(ctx, p.Term, conditions, operations...)
	if err == nil {
		return Promoted{Objects: len(candidates)}, nil
	}
	if !errors.Is(err, cellstore.ErrConflict) {
		return Promoted{}, err
	}
	var done Promoted
	for _, c := range candidates {
		result, err := p.promoteOne(ctx, keeper, c)
		done.add(result)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// promoteOne promotes a copy whose place may be taken, or whose slot moves.
func (p *Promotion) promoteOne(ctx context.Context, keeper *cellstore.Store, c candidate) (Promoted, error) {
	index, _ := p.Topology.Index(keeper.Cell)
	route := p.Topology.Route(c.slot)
	for {
		s := situation{Old: route.Old == index, New: route.New == index, Frozen: c.frozen}
		place, there, err := p.places(ctx, route, keeper, c.relative)
		if err != nil {
			return Promoted{}, err
		}
		s.Here, s.There = standingOf(place), there
		operations := []clientv3.Op{cellstore.Delete(c.copy.Key)}
		switch s.decide() {
		case ignore:
			return Promoted{}, nil
		case contest:
			klog.FromContext(ctx).Info("A copy cannot be promoted, as its place is taken; it stays a copy", "cell", p.Failed, "keeper", keeper.Cell, "key", place.Key)
			return Promoted{Contested: []string{place.Key}}, nil
		case promote:
			operations = append(operations, cellstore.Put(place.Key, c.value))
		case keep:
		}
		conditions := []clientv3.Cmp{cellstore.Unchanged(place.Key, place.ModRevision), cellstore.Unchanged(c.copy.Key, c.copy.ModRevision)}
		_, err = keeper.Txn(ctx, p.Term, conditions, operations...)
		if !errors.Is(err, cellstore.ErrConflict) {
			return Promoted{Objects: 1}, err
		}
	}
}

// thaw puts frozen objects of a cell to use, in slots that do not move.
func (p *Promotion) thaw(ctx context.Context, cell *cellstore.Store, part func(string) bool) error {
	index, _ := p.Topology.Index(cell.Cell)
	transactions, ctx := manyAtOnce(ctx)
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
				continue // no object of the API
			}
			class, slot := cellstore.Classify(object)
			route := p.Topology.Route(slot)
			if !class.Federated() || standing(object) != handover.Frozen || route.Moving() || route.New != index {
				continue
			}
			value, err := unmarked(kv.Value)
			if err != nil {
				return fmt.Errorf("putting %s in cell %s to use: %w", object, cell.Cell, err)
			}
			transactions.Go(func() error {
				// Nobody but the hub manager writes frozen objects, and this one does nothing else.
				_, err := cell.Txn(ctx, p.Term, []clientv3.Cmp{cellstore.Unchanged(kv.Key, kv.ModRevision)}, cellstore.Put(kv.Key, value))
				return err
			})
		}
		return nil
	}()
	return cmp.Or(transactions.Wait(), err)
}
