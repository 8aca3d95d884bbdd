package rebalance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// progressInterval is how often a store is asked for the progress of a watch.
const progressInterval = 50 * time.Millisecond

// index holds the keys of the objects that have to leave a cell, by slot, and watches the store. Values are read when
// an object moves.
type index struct {
	store *cellstore.Store
	// leaves and arrives report whether the objects of a slot leave the cell, or move to it.
	leaves, arrives func(slots.Slot) bool
	// loses means that leaves is true for some slot. Otherwise there is nothing to watch.
	loses bool
	// touched is called with each slot that has something to move.
	touched func(slots.Slot)

	mu    sync.Mutex
	known map[string]indexed
	// slots are the keys of each slot that leaves.
	slots map[slots.Slot]map[string]struct{}
	// copies are the keys of each slot that arrives whose objects were not active when the index was populated.
	copies      map[slots.Slot][]string
	left, total int64
	// lastLeft is the revision of the last commit.
	lastLeft int64
	revision int64
	advanced chan struct{} // closed and replaced when the revision grows
}

// indexed is what is remembered of an object.
type indexed struct {
	class cellstore.Class
	slot  slots.Slot
	left  bool
}

func newIndex(store *cellstore.Store) *index {
	return &index{
		store: store, known: map[string]indexed{}, slots: map[slots.Slot]map[string]struct{}{}, copies: map[slots.Slot][]string{},
		advanced: make(chan struct{}),
	}
}

// populate reads the whole store.
func (x *index) populate(ctx context.Context) error {
	revision, err := x.store.Revision(ctx)
	if err != nil {
		return err
	}
	for kv, err := range x.store.Range(ctx, x.store.Prefix(), revision) {
		if err != nil {
			return err
		}
		if err := x.add(kv, true); err != nil {
			return err
		}
	}
	x.advance(revision)
	return nil
}

// watch keeps the index up to date until the context ends. It returns nil only then.
func (x *index) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := x.store.Client().Watch(clientv3.WithRequireLeader(ctx), x.store.Prefix(), clientv3.WithPrefix(), clientv3.WithRev(x.seen()+1))
	for response := range watch {
		if err := response.Err(); err != nil {
			return fmt.Errorf("watching the store of cell %s: %w", x.store.Cell, err)
		}
		for _, event := range response.Events {
			kv, err := x.store.Opened(ctx, event)
			if err != nil {
				return err
			}
			if event.Type == clientv3.EventTypeDelete {
				x.forget(kv.Key)
			} else if err := x.add(kv, false); err != nil {
				return err
			}
		}
		x.advance(cellstore.Through(response))
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("watching the store of cell %s: the watch has ended", x.store.Cell)
}

// add takes an object into the index. An object that cannot be parsed is an error: it might have to move.
func (x *index) add(kv cellstore.KV, populating bool) error {
	object, err := cellstore.Parse(kv.Value)
	if err != nil {
		return fmt.Errorf("parsing %s in cell %s: %w", kv.Key, x.store.Cell, err)
	}
	class, slot := cellstore.Classify(object)
	if class == cellstore.Local {
		return nil
	}
	status := object.Labels[names.RebalanceStatusLabel]
	if populating && status == names.RebalanceMigrating && class.Federated() && x.arrives(slot) {
		x.mu.Lock()
		x.copies[slot] = append(x.copies[slot], kv.Key)
		x.mu.Unlock()
		x.touched(slot)
	}
	if !x.leaves(slot) {
		return nil
	}
	entry := indexed{class: class, slot: slot, left: status == names.RebalanceMigrated}
	x.mu.Lock()
	x.remove(kv.Key)
	x.known[kv.Key] = entry
	if x.slots[slot] == nil {
		x.slots[slot] = map[string]struct{}{}
	}
	x.slots[slot][kv.Key] = struct{}{}
	if class.Federated() {
		x.total++
		if entry.left {
			x.left++
			x.lastLeft = max(x.lastLeft, kv.ModRevision)
		}
	}
	x.mu.Unlock()
	if !entry.left {
		x.touched(slot)
	}
	return nil
}

func (x *index) forget(key string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(key)
}

func (x *index) remove(key string) {
	entry, found := x.known[key]
	if !found {
		return
	}
	delete(x.known, key)
	delete(x.slots[entry.slot], key)
	if entry.class.Federated() {
		x.total--
		if entry.left {
			x.left--
		}
	}
}

func (x *index) advance(revision int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if revision > x.revision {
		x.revision = revision
		close(x.advanced)
		x.advanced = make(chan struct{})
	}
}

func (x *index) seen() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.revision
}

// until waits for the index to have seen a revision.
func (x *index) until(ctx context.Context, revision int64) error {
	for {
		x.mu.Lock()
		seen, advanced := x.revision, x.advanced
		x.mu.Unlock()
		if seen >= revision {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-advanced:
		}
	}
}

// catchUp waits for the index to have seen everything that is stored by now.
func (x *index) catchUp(ctx context.Context) error {
	revision, err := x.store.Revision(ctx)
	if err != nil {
		return err
	}
	for x.seen() < revision {
		// Writes to other keys do not show in the watch, only in its progress.
		if err := x.store.Client().RequestProgress(clientv3.WithRequireLeader(ctx)); err != nil {
			return fmt.Errorf("watching the store of cell %s: %w", x.store.Cell, err)
		}
		waiting, cancel := context.WithTimeout(ctx, progressInterval)
		_ = x.until(waiting, revision) // if it takes longer the store is asked again
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// remaining returns the keys of a slot that are not marked as moved, in order.
func (x *index) remaining(slot slots.Slot) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(x.slots[slot])) {
		if !x.known[key].left {
			keys = append(keys, key)
		}
	}
	return keys
}

// inactive returns the keys of copies of a slot that a former mover has not activated.
func (x *index) inactive(slot slots.Slot) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.copies[slot])
}

// forgetCopies forgets them, because they are active now.
func (x *index) forgetCopies(slot slots.Slot) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.copies, slot)
}

// count returns how many federated objects have left and how many there are, and the revision of the last commit.
func (x *index) count() (left, total, last int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.left, x.total, x.lastLeft
}
