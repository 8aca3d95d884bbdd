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
	"github.com/cellplane/cellplane/internal/slots"
)

// leftovers are what earlier moves have left behind in a cell and the failure makes important.
type leftovers struct {
	// works are in slots that the cell has again. Its engine would stand back from them instead of making new ones.
	works []string
	// stale are objects in slots that the cell owns, with their revisions. What comes to life replaces them; the others are in the way
	// of new objects.
	stale map[string]int64
	// departed are objects that had moved to the failed cell, by key without prefix.
	departed map[string]departed
	// bound are slots with bindings that are frozen.
	bound map[slots.Slot]bool
}

// departed is what is left of an object that moved to the failed cell.
type departed struct {
	cell     *cellstore.Store
	slot     slots.Slot
	revision int64 // in the failed cell
}

var statusLabel = []byte(names.RebalanceStatusLabel)

// survey looks through a cell.
func (p *Promotion) survey(ctx context.Context, cell *cellstore.Store) (*leftovers, error) {
	index, _ := p.Topology.Index(cell.Cell)
	found := &leftovers{stale: map[string]int64{}, departed: map[string]departed{}, bound: map[slots.Slot]bool{}}
	for kv, err := range cell.Range(ctx, cell.Prefix(), 0) {
		if err != nil {
			return nil, err
		}
		if !bytes.Contains(kv.Value, statusLabel) {
			continue // most are not worth parsing
		}
		object, err := cellstore.Parse(kv.Value)
		if err != nil {
			continue // no object of the API
		}
		class, slot := cellstore.Classify(object)
		route := p.Topology.Route(slot)
		switch status := standing(object); {
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
			if to, revision, ok := parsePlace(object.Annotations[names.CopiedAtAnnotation]); ok && to == p.Failed {
				relative, _ := cell.Relative(kv.Key)
				found.departed[relative] = departed{cell, slot, revision}
			}
		}
	}
	return found, nil
}

// sweep removes what was left behind and has not been replaced.
func (p *Promotion) sweep(ctx context.Context, cell *cellstore.Store) error {
	found, err := p.survey(ctx, cell)
	if err != nil {
		return err
	}
	return discard(ctx, cell, p.Term, slices.Collect(maps.Keys(found.stale)))
}

// revive brings objects back to life that had moved to the failed cell so lately that no copy of them was made: what the move has left
// behind is the same. They are frozen until everything is there.
func (p *Promotion) revive(ctx context.Context, all []*leftovers, received backup.Received, bound *slotSet) (int, error) {
	latest := map[string]departed{} // an object may have come and gone more than once
	for _, found := range all {
		for relative, d := range found.departed {
			if d.revision > latest[relative].revision {
				latest[relative] = d
			}
		}
	}
	revived := 0
	for relative, d := range latest {
		if d.revision <= received.Through(d.slot) {
			continue // its keeper knows better: it has a copy, or the object was deleted since
		}
		done, err := p.reviveOne(ctx, relative, d)
		if err != nil {
			return revived, err
		}
		if done {
			revived++
			bound.add(d.slot)
		}
	}
	return revived, nil
}

// reviveOne puts what is left of an object where it now belongs, unless there is a newer one.
func (p *Promotion) reviveOne(ctx context.Context, relative string, d departed) (bool, error) {
	route := p.Topology.Route(d.slot)
	owner := p.Stores[p.Topology.Name(route.New)]
	for {
		left, _, err := d.cell.Get(ctx, d.cell.Key(relative))
		if err != nil || standingOf(left) != handover.Moved {
			return false, err
		}
		place, there, err := p.places(ctx, route, owner, relative)
		if err != nil {
			return false, err
		}
		if here := standingOf(place); here == handover.Active || here == handover.Frozen || there == handover.Active || there == handover.Frozen {
			return false, nil
		}
		value, err := frozen(left.Value)
		if err != nil {
			return false, err
		}
		_, err = owner.Txn(ctx, p.Term, []clientv3.Cmp{cellstore.Unchanged(place.Key, place.ModRevision)}, cellstore.Put(place.Key, value))
		if !errors.Is(err, cellstore.ErrConflict) {
			return err == nil, err
		}
	}
}

// places returns what a cell of a slot has under a key, and what the other cell has if the slot moves.
func (p *Promotion) places(ctx context.Context, route slots.Route, cell *cellstore.Store, relative string) (here cellstore.KV, there handover.Status, err error) {
	if here, _, err = cell.Get(ctx, cell.Key(relative)); err != nil || !route.Moving() {
		return here, handover.Absent, err
	}
	other := p.Stores[p.Topology.Name(route.New)]
	if other == cell {
		other = p.Stores[p.Topology.Name(route.Old)]
	}
	kv, _, err := other.Get(ctx, other.Key(relative))
	return here, standingOf(kv), err
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
