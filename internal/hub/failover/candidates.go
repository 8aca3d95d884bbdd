package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
	"github.com/cellplane/cellplane/internal/lockedset"
	"github.com/cellplane/cellplane/internal/slots"
)

// candidate is a copy to promote.
type candidate struct {
	copy     cellstore.KV
	relative string
	slot     slots.Slot
	frozen   bool   // it was made of a frozen object
	waits    bool   // it is stored frozen, and activated when everything is stored
	value    []byte // the promoted value
}

// promoteAt promotes a part of the copies in one backup cell. Stale objects may be replaced.
func (p *Promotion) promoteAt(ctx context.Context, backupCell *cellstore.Store, stale map[string]int64, owned func(slots.Slot) bool, received backup.Received, part func(string) bool, bound *lockedset.Set[slots.Slot]) (Promoted, error) {
	var mu sync.Mutex
	var done Promoted
	transactions, ctx := newTransactions(ctx)
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
		begin(func() (Promoted, error) { return p.promote(ctx, backupCell, stale, together...) })
	}
	index, _ := p.Topology.Index(backupCell.Cell)
	err := p.candidates(ctx, backupCell, part, bound, func(c candidate) {
		switch route := p.Topology.Route(c.slot); {
		case received.Through(c.slot) == 0 && !owned(c.slot):
			// Its objects have moved on, and this copy was to be removed. The object may be deleted since.
		case received.Elsewhere(c.slot, backupCell.Cell):
			// It is left from an earlier topology. The complete copy of the slot is in another cell, where the object may be newer or deleted.
		case route.Moving() || route.New != index:
			begin(func() (Promoted, error) { return p.promoteOne(ctx, backupCell, c) })
		case !c.waits:
			begin(func() (Promoted, error) { return p.promote(ctx, backupCell, stale, c) })
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

// candidates reads a part of the copies in a backup cell.
func (p *Promotion) candidates(ctx context.Context, backupCell *cellstore.Store, part func(string) bool, bound *lockedset.Set[slots.Slot], visit func(candidate)) error {
	prefix := backup.Prefix(p.Failed)
	for kv, err := range backupCell.Range(ctx, prefix, 0) {
		if err != nil {
			return err
		}
		relative := strings.TrimPrefix(kv.Key, prefix)
		if !part(relative) {
			continue
		}
		c, err := p.candidate(kv, relative, bound)
		if err != nil {
			return fmt.Errorf("the copy %s in cell %s: %w", kv.Key, backupCell.Cell, err)
		}
		visit(c)
	}
	return nil
}

// candidate reads a copy. Templates whose slot has bindings wait for these. Revisions wait for their workloads: an engine that saw one without the other would remove it.
func (p *Promotion) candidate(kv cellstore.KV, relative string, bound *lockedset.Set[slots.Slot]) (candidate, error) {
	object, err := cellstore.Parse(kv.Value)
	if err != nil {
		return candidate{}, err
	}
	_, slot := cellstore.Classify(object)
	c := candidate{copy: kv, relative: relative, slot: slot, frozen: statusOfObject(object) == handover.Frozen}
	if isBinding(relative) {
		bound.Add(slot)
	}
	if c.waits = bound.Has(slot) || object.Labels[names.RevisionOfLabel] != "" || p.Topology.Route(slot).Moving(); c.waits {
		c.value, err = frozen(kv.Value)
	} else {
		c.value, err = unmarked(kv.Value)
	}
	return c, err
}

// promote promotes copies in one transaction, or one by one if another object has the key of any.
func (p *Promotion) promote(ctx context.Context, backupCell *cellstore.Store, stale map[string]int64, candidates ...candidate) (Promoted, error) {
	if len(candidates) == 0 {
		return Promoted{}, nil
	}
	conditions := make([]clientv3.Cmp, 0, 2*len(candidates))
	operations := make([]clientv3.Op, 0, 2*len(candidates))
	for _, c := range candidates {
		key := backupCell.Key(c.relative)
		conditions = append(conditions, cellstore.Unchanged(key, stale[key]), cellstore.Unchanged(c.copy.Key, c.copy.ModRevision))
		operations = append(operations, cellstore.Put(key, c.value), cellstore.Delete(c.copy.Key))
	}
	_, err := backupCell.Txn(ctx, p.Term, conditions, operations...)
	if err == nil {
		return Promoted{Objects: len(candidates)}, nil
	}
	if !errors.Is(err, cellstore.ErrConflict) {
		return Promoted{}, err
	}
	var done Promoted
	for _, c := range candidates {
		result, err := p.promoteOne(ctx, backupCell, c)
		done.add(result)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// promoteOne promotes a copy whose key another object may have, or whose slot moves.
func (p *Promotion) promoteOne(ctx context.Context, backupCell *cellstore.Store, c candidate) (Promoted, error) {
	index, _ := p.Topology.Index(backupCell.Cell)
	route := p.Topology.Route(c.slot)
	for {
		s := placement{Old: route.Old == index, New: route.New == index, Frozen: c.frozen}
		here, there, err := p.places(ctx, route, backupCell, c.relative)
		if err != nil {
			return Promoted{}, err
		}
		s.Here, s.There = statusOf(here), there
		operations := []clientv3.Op{cellstore.Delete(c.copy.Key)}
		switch s.decide() {
		case ignore:
			return Promoted{}, nil
		case contest:
			klog.FromContext(ctx).Info("copy cannot be promoted because another object has its key", "cell", p.Failed, "backupCell", backupCell.Cell, "key", here.Key)
			return Promoted{Contested: []string{here.Key}}, nil
		case promote:
			operations = append(operations, cellstore.Put(here.Key, c.value))
		case keep:
		}
		conditions := []clientv3.Cmp{cellstore.Unchanged(here.Key, here.ModRevision), cellstore.Unchanged(c.copy.Key, c.copy.ModRevision)}
		_, err = backupCell.Txn(ctx, p.Term, conditions, operations...)
		if !errors.Is(err, cellstore.ErrConflict) {
			return Promoted{Objects: 1}, err
		}
		present, err := c.again(ctx, backupCell)
		if err != nil || !present {
			return Promoted{}, err
		}
	}
}

// again reads a copy that may have changed, and reports whether it is still there.
func (c *candidate) again(ctx context.Context, backupCell *cellstore.Store) (bool, error) {
	kv, _, err := backupCell.Get(ctx, c.copy.Key)
	if err != nil || kv.ModRevision == 0 || kv.ModRevision == c.copy.ModRevision {
		return kv.ModRevision != 0, err
	}
	object, err := cellstore.Parse(kv.Value)
	if err != nil {
		return false, err
	}
	c.copy, c.frozen = kv, statusOfObject(object) == handover.Frozen
	if c.waits {
		c.value, err = frozen(kv.Value)
	} else {
		c.value, err = unmarked(kv.Value)
	}
	return true, err
}
