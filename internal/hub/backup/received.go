package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/atrest"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/durability"
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
	// Store is the identity of the cell's store.
	Store string `json:"store,omitempty"`
}

// slotSet is a set of slots: a bitmap, lowest bit first.
type slotSet [slots.Count / 8]byte

func (s *slotSet) add(slot slots.Slot) { s[slot/8] |= 1 << (slot % 8) }

func (s *slotSet) has(slot slots.Slot) bool { return s[slot/8]>>(slot%8)&1 == 1 }

// scopeIn returns the slots whose objects are copied to a backup cell.
func scopeIn(places *placements, target slots.Index) slotSet {
	var scope slotSet
	for slot, place := range places {
		if place == target {
			scope.add(slots.Slot(slot))
		}
	}
	return scope
}

// Received is what the backup cells of a cell have received.
type Received []receipt

// receipt is what one backup cell has received.
type receipt struct {
	target  string
	scope   slotSet
	through int64
	store   string // its identity; "" if it is not known
}

// ReceivedBy reads what other cells have received of a cell.
func ReceivedBy(ctx context.Context, targets map[string]*cellstore.Store, cell string) (Received, error) {
	var all Received
	for _, target := range targets {
		r, err := receivedBy(ctx, target, cell)
		if err != nil {
			return nil, err
		}
		if r.target = target.Cell; r.through != 0 {
			all = append(all, r)
		}
	}
	return all, nil
}

// receivedBy reads what one backup cell has received of a cell. It is empty if its copies have never been complete.
func receivedBy(ctx context.Context, target *cellstore.Store, cell string) (receipt, error) {
	var r receipt
	found, err := target.GetAll(ctx, []string{progressKey(cell), scopeKey(cell)})
	if err != nil || found[0].ModRevision == 0 || len(found[1].Value) != len(r.scope) {
		return r, err
	}
	var reached progress
	if err := json.Unmarshal(found[0].Value, &reached); err != nil {
		return r, fmt.Errorf("reading the progress of the backup of cell %s in cell %s: %w", cell, target.Cell, err)
	}
	copy(r.scope[:], found[1].Value)
	r.through, r.store = reached.Revision, reached.Store
	return r, nil
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

// Elsewhere reports whether another cell has a complete copy of a slot, and one cell has not. What that one holds is left from an earlier topology.
func (r Received) Elsewhere(slot slots.Slot, target string) bool {
	elsewhere := false
	for i := range r {
		if !r[i].scope.has(slot) {
			continue
		}
		if r[i].target == target {
			return false
		}
		elsewhere = true
	}
	return elsewhere
}

// Revisions returns the revisions of the cell that Through returns.
func (r Received) Revisions() []int64 {
	var all []int64
	for i := range r {
		all = append(all, r[i].through)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// report adds to the transaction the record by which gateways know what the backup cell has received. API servers read the record. It is left
// out as long as they have not shown how they encrypt: copies do not depend on them.
func (w *writer) report(ctx context.Context, revision int64) error {
	if _, err := w.target.FollowKeys(ctx); errors.Is(err, atrest.ErrNoAnswer) {
		return nil
	} else if err != nil {
		return err
	}
	record, err := durability.Received{Source: w.source, Revision: revision, Epoch: w.epoch, InUse: w.inUse == nil || w.inUse(), Time: w.now()}.Encode()
	if err == nil {
		w.operations = append(w.operations, cellstore.Put(w.target.Key(recordKey(w.source)), record))
	}
	return err
}

// recordKey is the key, in a backup cell, of the record of what it has received from a cell.
func recordKey(cell string) string { return leaseKeys + durability.ReceivedName(cell) }

// leaseKeys is the prefix of these records.
const leaseKeys = "leases/" + durability.Namespace + "/"

// markKey is the key of the mark with which gateways ask for copies at once.
const markKey = "configmaps/" + durability.Namespace + "/" + durability.MarkName

// mayBeReplicated reports whether an object may have asked that its writes are copied at once. It need not be exact.
func mayBeReplicated(value []byte) bool { return bytes.Contains(value, replicatedBytes) }

var replicatedBytes = []byte(names.DurabilityAnnotation)

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
