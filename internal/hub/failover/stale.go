package failover

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
	"github.com/cellplane/cellplane/internal/lockedset"
	"github.com/cellplane/cellplane/internal/slots"
)

// staleObjects are the stale copies and frozen bindings in a cell that matter to a promotion.
type staleObjects struct {
	// works are marked Works in slots that the cell owns again. Its engine would ignore them instead of creating new
	// ones.
	works []string
	// stale are stale copies in slots that the cell owns, with their revisions. Promoted objects replace them; the
	// others would block new objects.
	stale map[string]int64
	// lost are stale copies of objects that had moved to the failed cell, by key without prefix.
	lost map[string]staleCopy
	// bound are slots with frozen bindings.
	bound map[slots.Slot]bool
}

// staleCopy is the stale copy of an object that had moved to the failed cell.
type staleCopy struct {
	cell     *cellstore.Store
	slot     slots.Slot
	revision int64 // of the object in the failed cell
}

var statusLabel = []byte(names.RebalanceStatusLabel)

// findStale reads a cell.
func (p *Promotion) findStale(ctx context.Context, cell *cellstore.Store) (*staleObjects, error) {
	index, _ := p.Topology.Index(cell.Cell)
	found := &staleObjects{stale: map[string]int64{}, lost: map[string]staleCopy{}, bound: map[slots.Slot]bool{}}
	for kv, err := range cell.Range(ctx, cell.Prefix(), 0) {
		if err != nil {
			return nil, err
		}
		if !bytes.Contains(kv.Value, statusLabel) {
			continue // most objects have no mark, and need not be parsed
		}
		object, err := cellstore.Parse(kv.Value)
		if err != nil {
			continue // no API object
		}
		class, slot := cellstore.Classify(object)
		route := p.Topology.Route(slot)
		switch status := statusOfObject(object); {
		case class == cellstore.Local:
		case status == handover.Frozen && class == cellstore.Binding:
			found.bound[slot] = true
		case status != handover.Moved:
		case class == cellstore.Work:
			if route.Old == index || route.New == index {
				found.works = append(found.works, kv.Key)
			}
		default:
			if route.New == index {
				found.stale[kv.Key] = kv.ModRevision
			}
			if to, revision, ok := parsePosition(object.Annotations[names.CopiedAtAnnotation]); ok && to == p.Failed {
				relative, _ := cell.Relative(kv.Key)
				found.lost[relative] = staleCopy{cell, slot, revision}
			}
		}
	}
	return found, nil
}

// sweep removes stale copies that were not replaced.
func (p *Promotion) sweep(ctx context.Context, cell *cellstore.Store) error {
	found, err := p.findStale(ctx, cell)
	if err != nil {
		return err
	}
	return removeKeys(ctx, cell, p.Term, slices.Collect(maps.Keys(found.stale)))
}

// restore restores objects that had moved to the failed cell so recently that no backup exists. The stale copy of the
// move is the same object. It stays frozen until everything is stored.
//
// Where the failed cell owned nothing any more, its objects have moved on. A stale copy from before that may be of one that was deleted since.
func (p *Promotion) restore(ctx context.Context, all []*staleObjects, owned func(slots.Slot) bool, received backup.Received, bound *lockedset.Set[slots.Slot]) (int, error) {
	latest := map[string]staleCopy{} // an object may have moved more than once
	for _, found := range all {
		for relative, d := range found.lost {
			if d.revision > latest[relative].revision {
				latest[relative] = d
			}
		}
	}
	restored := 0
	for relative, d := range latest {
		switch through := received.Through(d.slot); {
		case d.revision <= through:
			continue // the backup is newer: there is a copy, or the object was deleted
		case through == 0 && !owned(d.slot):
			continue
		}
		done, err := p.restoreOne(ctx, relative, d)
		if err != nil {
			return restored, err
		}
		if done {
			restored++
			bound.Add(d.slot)
		}
	}
	return restored, nil
}

// restoreOne stores a stale copy in the cell that owns it now, unless there is a newer object.
func (p *Promotion) restoreOne(ctx context.Context, relative string, d staleCopy) (bool, error) {
	route := p.Topology.Route(d.slot)
	owner := p.Stores[p.Topology.Name(route.New)]
	for {
		copied, _, err := d.cell.Get(ctx, d.cell.Key(relative))
		if err != nil || statusOf(copied) != handover.Moved {
			return false, err
		}
		stored, there, err := p.places(ctx, route, owner, relative)
		if err != nil {
			return false, err
		}
		if here := statusOf(stored); here == handover.Active || here == handover.Frozen || there == handover.Active || there == handover.Frozen {
			return false, nil
		}
		if err := owner.Admits(ctx, d.cell); err != nil {
			return false, err
		}
		value, err := frozen(copied.Value)
		if err != nil {
			return false, err
		}
		_, err = owner.Txn(ctx, p.Term, []clientv3.Cmp{cellstore.Unchanged(stored.Key, stored.ModRevision)}, cellstore.Put(stored.Key, value))
		if !errors.Is(err, cellstore.ErrConflict) {
			return err == nil, err
		}
	}
}

// places returns what a cell holds under a key and, if the slot moves, the status in the other cell.
func (p *Promotion) places(ctx context.Context, route slots.Route, cell *cellstore.Store, relative string) (here cellstore.KV, there handover.Status, err error) {
	if here, _, err = cell.Get(ctx, cell.Key(relative)); err != nil || !route.Moving() {
		return here, handover.Absent, err
	}
	other := p.Stores[p.Topology.Name(route.New)]
	if other == cell {
		other = p.Stores[p.Topology.Name(route.Old)]
	}
	kv, _, err := other.Get(ctx, other.Key(relative))
	return here, statusOf(kv), err
}

// parsePosition reads "<cell>/<revision>".
func parsePosition(text string) (cell string, revision int64, ok bool) {
	cell, number, ok := strings.Cut(text, "/")
	if !ok {
		return "", 0, false
	}
	revision, err := strconv.ParseInt(number, 10, 64)
	return cell, revision, err == nil
}
