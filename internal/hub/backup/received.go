package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// A keeper stores two things beside its copies of a cell: how far they reach, with each of them, and for which slots that holds. The
// slots change when the keeper has been compared under a topology, and not before: what has just become its business is not what it has.
// A third is written anew whenever an answer is missing, and what was sent before is refused from then on (pair.claim).
const (
	progressRoot = "/cellplane/backup-progress/"
	scopeRoot    = "/cellplane/backup-scope/"
	guardRoot    = "/cellplane/backup-guard/"
)

func progressKey(cell string) string { return progressRoot + cell }
func scopeKey(cell string) string    { return scopeRoot + cell }
func guardKey(cell string) string    { return guardRoot + cell }

// progress is how far a keeper's copies of a cell reach.
type progress struct {
	// Revision of the cell's store up to which every write to the slots of the keeper is copied.
	Revision int64 `json:"revision"`
	// Time at which that was so.
	Time time.Time `json:"time"`
}

// slotSet is a set of slots: a bitmap, lowest bit first.
type slotSet [slots.Count / 8]byte

func (s *slotSet) add(slot slots.Slot) { s[slot/8] |= 1 << (slot % 8) }

func (s *slotSet) has(slot slots.Slot) bool { return s[slot/8]>>(slot%8)&1 == 1 }

// scopeOf returns the slots whose objects in a cell are kept by a keeper.
func scopeOf(topology *slots.Map, cell, keeper slots.Index) slotSet {
	var scope slotSet
	for slot := range slots.Slot(slots.Count) {
		if keeperOf(topology, cell, slot) == keeper {
			scope.add(slot)
		}
	}
	return scope
}

// Received tells what of a cell has reached its keepers.
type Received []receipt

// receipt is what one keeper vouches for.
type receipt struct {
	scope   slotSet
	through int64
}

// ReceivedBy asks keepers what they have of a cell.
func ReceivedBy(ctx context.Context, keepers map[string]*cellstore.Store, cell string) (Received, error) {
	var all Received
	for name, keeper := range keepers {
		found, err := keeper.GetAll(ctx, []string{progressKey(cell), scopeKey(cell)})
		if err != nil {
			return nil, err
		}
		var r receipt
		if found[0].ModRevision == 0 || len(found[1].Value) != len(r.scope) {
			continue // it has never had everything
		}
		var reached progress
		if err := json.Unmarshal(found[0].Value, &reached); err != nil {
			return nil, fmt.Errorf("reading how far the backup of cell %s in cell %s reaches: %w", cell, name, err)
		}
		copy(r.scope[:], found[1].Value)
		r.through = reached.Revision
		all = append(all, r)
	}
	return all, nil
}

// Through returns up to which revision of the cell every write to the objects of a slot is copied; 0 if nobody vouches for the slot.
func (r Received) Through(slot slots.Slot) int64 {
	through := int64(0)
	for i := range r {
		if r[i].scope.has(slot) {
			through = max(through, r[i].through)
		}
	}
	return through
}

// Forget has a keeper vouch for nothing of a cell any more, as the cell begins anew.
func Forget(cell string) []clientv3.Op {
	return []clientv3.Op{cellstore.Delete(progressKey(cell)), cellstore.Delete(scopeKey(cell)), cellstore.Delete(guardKey(cell))}
}

// Wipe has a keeper give up all copies, and vouch for nothing.
func Wipe() []clientv3.Op {
	var operations []clientv3.Op
	for _, root := range []string{progressRoot, scopeRoot, guardRoot, Root} {
		operations = append(operations, clientv3.OpDelete(root, clientv3.WithPrefix()))
	}
	return operations
}
