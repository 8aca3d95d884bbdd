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

// Beside its copies of a cell, a backup cell stores their progress (with each batch), and their scope: the slots for
// which the progress holds. The scope changes only after a comparison under a new topology, because newly assigned
// slots are not copied before. The guard is rewritten whenever an answer is missing, so that requests sent before are
// refused (pair.claim).
const (
	progressRoot = "/cellplane/backup-progress/"
	scopeRoot    = "/cellplane/backup-scope/"
	guardRoot    = "/cellplane/backup-guard/"
)

func progressKey(cell string) string { return progressRoot + cell }
func scopeKey(cell string) string    { return scopeRoot + cell }
func guardKey(cell string) string    { return guardRoot + cell }

// progress is how far the copies of a cell reach.
type progress struct {
	// Revision of the cell's store up to which every write to the slots in scope is copied.
	Revision int64 `json:"revision"`
	// Time at which it was written.
	Time time.Time `json:"time"`
}

// slotSet is a set of slots: a bitmap, lowest bit first.
type slotSet [slots.Count / 8]byte

func (s *slotSet) add(slot slots.Slot) { s[slot/8] |= 1 << (slot % 8) }

func (s *slotSet) has(slot slots.Slot) bool { return s[slot/8]>>(slot%8)&1 == 1 }

// scopeOf returns the slots whose objects in a cell are copied to a backup cell.
func scopeOf(topology *slots.Map, cell, target slots.Index) slotSet {
	var scope slotSet
	for slot := range slots.Slot(slots.Count) {
		if cellForSlot(topology, cell, slot) == target {
			scope.add(slot)
		}
	}
	return scope
}

// Received is what the backup cells of a cell have received.
type Received []receipt

// receipt is what one backup cell has received.
type receipt struct {
	scope   slotSet
	through int64
}

// ReceivedBy reads what other cells have received of a cell.
func ReceivedBy(ctx context.Context, targets map[string]*cellstore.Store, cell string) (Received, error) {
	var all Received
	for name, target := range targets {
		found, err := target.GetAll(ctx, []string{progressKey(cell), scopeKey(cell)})
		if err != nil {
			return nil, err
		}
		var r receipt
		if found[0].ModRevision == 0 || len(found[1].Value) != len(r.scope) {
			continue // it has never been complete
		}
		var reached progress
		if err := json.Unmarshal(found[0].Value, &reached); err != nil {
			return nil, fmt.Errorf("reading the progress of the backup of cell %s in cell %s: %w", cell, name, err)
		}
		copy(r.scope[:], found[1].Value)
		r.through = reached.Revision
		all = append(all, r)
	}
	return all, nil
}

// Through returns the revision of the cell up to which every write to a slot is copied; 0 if no cell has a complete
// copy of the slot.
func (r Received) Through(slot slots.Slot) int64 {
	through := int64(0)
	for i := range r {
		if r[i].scope.has(slot) {
			through = max(through, r[i].through)
		}
	}
	return through
}

// Forget returns operations that remove the record of what was received from a cell.
func Forget(cell string) []clientv3.Op {
	return []clientv3.Op{cellstore.Delete(progressKey(cell)), cellstore.Delete(scopeKey(cell)), cellstore.Delete(guardKey(cell))}
}

// Wipe returns operations that remove all copies of all cells, and the records of what was received.
func Wipe() []clientv3.Op {
	var operations []clientv3.Op
	for _, root := range []string{progressRoot, scopeRoot, guardRoot, Root} {
		operations = append(operations, clientv3.OpDelete(root, clientv3.WithPrefix()))
	}
	return operations
}
