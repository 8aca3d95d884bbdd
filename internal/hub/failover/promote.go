package failover

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/slots"
)

// Promotion brings the copies of a failed cell to life.
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
}

// batch is how many objects one transaction promotes. etcd allows 128 operations by default.
const batch = 100

// batchBytes bounds a transaction; etcd takes 1.5 MiB by default.
const batchBytes = 1 << 20

// Run promotes everything, all keepers at once. Requests for the slots have to wait until it is done.
func (p *Promotion) Run(ctx context.Context) (Promoted, error) {
	results := make([]Promoted, p.Topology.Cells())
	group, ctx := errgroup.WithContext(ctx)
	for i := range p.Topology.Cells() {
		cell := p.Topology.Cell(slots.Index(i))
		if cell.State == slots.Failed {
			continue
		}
		store := p.Stores[cell.Name]
		if store == nil {
			return Promoted{}, fmt.Errorf("promoting the backup of cell %s: the store of cell %s cannot be reached", p.Failed, cell.Name)
		}
		group.Go(func() (err error) {
			results[i], err = p.at(ctx, store)
			return err
		})
	}
	err := group.Wait()
	var sum Promoted
	for _, result := range results {
		sum.Objects += result.Objects
		sum.Contested = append(sum.Contested, result.Contested...)
	}
	if err != nil {
		return sum, fmt.Errorf("promoting the backup of cell %s: %w", p.Failed, err)
	}
	return sum, nil
}

// at promotes what one keeper has.
func (p *Promotion) at(ctx context.Context, keeper *cellstore.Store) (Promoted, error) {
	var done Promoted
	revived, err := p.revive(ctx, keeper)
	done.Objects += revived
	if err != nil {
		return done, err
	}
	var candidates []candidate
	size := 0
	flush := func() error {
		result, err := p.promote(ctx, keeper, candidates)
		done.Objects += result.Objects
		done.Contested = append(done.Contested, result.Contested...)
		candidates, size = candidates[:0], 0
		return err
	}
	prefix := backup.Prefix(p.Failed)
	for kv, err := range keeper.Range(ctx, prefix, 0) {
		if err != nil {
			return done, err
		}
		value, err := unmarked(kv.Value)
		if err != nil {
			return done, fmt.Errorf("the copy %s in cell %s: %w", kv.Key, keeper.Cell, err)
		}
		c := candidate{copy: kv, live: keeper.Key(strings.TrimPrefix(kv.Key, prefix)), value: value}
		if len(candidates) > 0 && (len(candidates) == batch || size+len(value) > batchBytes) {
			if err := flush(); err != nil {
				return done, err
			}
		}
		candidates, size = append(candidates, c), size+len(value)
	}
	return done, flush()
}

// candidate is a copy that is to come to life.
type candidate struct {
	copy  cellstore.KV
	live  string // where it will be
	value []byte
}

// promote promotes several copies in one transaction, or one by one if the place of any is taken.
func (p *Promotion) promote(ctx context.Context, keeper *cellstore.Store, candidates []candidate) (Promoted, error) {
	if len(candidates) == 0 {
		return Promoted{}, nil
	}
	conditions := make([]clientv3.Cmp, 0, len(candidates))
	operations := make([]clientv3.Op, 0, len(candidates)+1)
	for _, c := range candidates {
		conditions = append(conditions, cellstore.Unchanged(c.live, 0))
		operations = append(operations, cellstore.Put(c.live, c.value))
	}
	// Nobody adds copies of a cell that has failed, so that the range holds just these.
	first, last := candidates[0].copy.Key, candidates[len(candidates)-1].copy.Key
	operations = append(operations, clientv3.OpDelete(first, clientv3.WithRange(last+"\x00")))
	_, err := keeper.Txn(ctx, p.Term, conditions, operations...)
	if err == nil {
		return Promoted{Objects: len(candidates)}, nil
	}
	if !errors.Is(err, cellstore.ErrConflict) {
		return Promoted{}, err
	}
	var done Promoted
	for _, c := range candidates {
		promoted, err := p.promoteOne(ctx, keeper, c)
		if err != nil {
			return done, err
		}
		if promoted {
			done.Objects++
		} else {
			done.Contested = append(done.Contested, c.live)
		}
	}
	return done, nil
}

// promoteOne promotes a copy whose place may be taken by what a move has left behind, which it replaces.
func (p *Promotion) promoteOne(ctx context.Context, keeper *cellstore.Store, c candidate) (bool, error) {
	for {
		there, _, err := keeper.Get(ctx, c.live)
		if err != nil {
			return false, err
		}
		if there.ModRevision != 0 && !isLeftover(there.Value) {
			klog.FromContext(ctx).Info("A copy cannot be promoted, as its place is taken; it stays a copy", "cell", p.Failed, "keeper", keeper.Cell, "key", c.live)
			return false, nil
		}
		conditions := []clientv3.Cmp{cellstore.Unchanged(c.live, there.ModRevision), cellstore.Unchanged(c.copy.Key, c.copy.ModRevision)}
		_, err = keeper.Txn(ctx, p.Term, conditions, cellstore.Put(c.live, c.value), cellstore.Delete(c.copy.Key))
		if !errors.Is(err, cellstore.ErrConflict) {
			return err == nil, err
		}
	}
}

// unmarked returns a stored object without what a move has written on it.
func unmarked(value []byte) ([]byte, error) {
	return cellstore.WithMark(value, cellstore.Mark{
		Labels:      map[string]string{names.RebalanceStatusLabel: ""},
		Annotations: map[string]string{names.CopiedAtAnnotation: ""},
	})
}

func isLeftover(value []byte) bool {
	object, err := cellstore.Parse(value)
	return err == nil && object.Labels[names.RebalanceStatusLabel] == names.RebalanceMigrated
}

// revive brings objects back to life that had moved to the failed cell so lately that no copy of them was made: what the move has left
// behind is the same.
func (p *Promotion) revive(ctx context.Context, cell *cellstore.Store) (int, error) {
	reached, err := p.reached(ctx)
	if err != nil {
		return 0, err
	}
	revived := 0
	for kv, err := range cell.Range(ctx, cell.Prefix(), 0) {
		if err != nil {
			return revived, err
		}
		if !strings.Contains(string(kv.Value), names.RebalanceStatusLabel) {
			continue // most are not worth parsing
		}
		object, err := cellstore.Parse(kv.Value)
		if err != nil || object.Labels[names.RebalanceStatusLabel] != names.RebalanceMigrated {
			continue
		}
		to, revision, ok := parsePlace(object.Annotations[names.CopiedAtAnnotation])
		if !ok || to != p.Failed {
			continue
		}
		_, slot := cellstore.Classify(object)
		owner := p.Topology.Name(p.Topology.Route(slot).New)
		if revision <= reached[owner] {
			continue // its keeper knows better: it has a copy, or the object was deleted since
		}
		done, err := p.reviveAt(ctx, cell, kv, owner)
		if err != nil {
			return revived, err
		}
		if done {
			revived++
		}
	}
	return revived, nil
}

// reviveAt puts what is left of an object where it now belongs, unless there is a newer one.
func (p *Promotion) reviveAt(ctx context.Context, cell *cellstore.Store, leftover cellstore.KV, owner string) (bool, error) {
	store := p.Stores[owner]
	relative, _ := cell.Relative(leftover.Key)
	value, err := unmarked(leftover.Value)
	if err != nil {
		return false, err
	}
	expected := int64(0)
	if owner == cell.Cell {
		expected = leftover.ModRevision
	}
	_, err = store.Txn(ctx, p.Term, []clientv3.Cmp{cellstore.Unchanged(store.Key(relative), expected)}, cellstore.Put(store.Key(relative), value))
	if errors.Is(err, cellstore.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// reached returns how far the keepers have followed the failed cell.
func (p *Promotion) reached(ctx context.Context) (map[string]int64, error) {
	all := map[string]int64{}
	for name, store := range p.Stores {
		progress, err := backup.ProgressOf(ctx, store, p.Failed)
		if err != nil {
			return nil, err
		}
		all[name] = progress.Revision
	}
	return all, nil
}

// parsePlace reads "<cell>/<revision>".
func parsePlace(text string) (cell string, revision int64, ok bool) {
	cell, number, ok := strings.Cut(text, "/")
	if !ok {
		return "", 0, false
	}
	revision, err := strconv.ParseInt(number, 10, 64)
	return cell, revision, err == nil
}
