package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/cellstore"
)

const (
	// batch is how many keys one transaction writes. etcd allows 128 operations by default.
	batch = 100
	// batchBytes bounds a transaction; etcd takes 1.5 MiB by default, and an object may be as large.
	batchBytes = 512 << 10
	// writeInterval is the least time between two writes to a keeper that carry copies. What changes meanwhile goes together, the newest
	// value of each key; it is most of the lag, and what is lost at worst if a cell is lost.
	writeInterval = 500 * time.Millisecond
	// idleInterval is how often a keeper is told how far it is if nothing has changed that it keeps. It loses nothing by knowing less.
	idleInterval = 10 * time.Second
	// maxPending is how many keys may wait for a keeper that cannot be reached, before it is compared anew instead.
	maxPending = 100_000
)

// change is the newest that is known of a key.
type change struct {
	value []byte // nil for a deletion
	seen  time.Time
}

// pair carries the copies of one cell to one keeper.
type pair struct {
	source string // the cell's name
	keeper *cellstore.Store
	term   cellstore.Term
	now    func() time.Time

	wake chan struct{}

	mu      sync.Mutex
	pending map[string]change // by key without prefix
	writing map[string]change // what was pending and is on its way; a keeper that hangs keeps it there
	through int64             // the source's revision up to which everything is pending or written
	tooMany bool

	written int64 // the source's revision up to which everything is written
	synced  bool

	// Only the goroutine that writes uses these.
	told  time.Time // when the keeper was last told how far it is
	guard int64     // the revision of the keeper's guard, under which it takes what is written; 0 if that has to be claimed first
}

func newPair(source string, keeper *cellstore.Store, term cellstore.Term, revision int64) *pair {
	return &pair{
		source: source, keeper: keeper, term: term, now: time.Now, wake: make(chan struct{}, 1),
		pending: map[string]change{}, through: revision,
	}
}

// note takes a change that the watch of the source has brought.
func (p *pair) note(key string, value []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) >= maxPending {
		p.tooMany = true
		return
	}
	c := change{value: value, seen: p.now()}
	if earlier, waiting := p.pending[key]; waiting {
		c.seen = earlier.seen // the lag is that of the oldest change
	}
	p.pending[key] = c
}

// reach notes that all changes up to a revision have been noted.
func (p *pair) reach(revision int64) {
	p.mu.Lock()
	p.through = max(p.through, revision)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take returns everything that is pending.
func (p *pair) take() (changes map[string]change, through int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tooMany {
		return nil, 0, fmt.Errorf("more than %d changes wait for it", maxPending)
	}
	changes, through = p.pending, p.through
	p.pending, p.writing = map[string]change{}, changes
	return changes, through, nil
}

// giveBack returns changes that could not be written, unless there are newer ones.
func (p *pair) giveBack(changes map[string]change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = nil
	for key, c := range changes {
		if newer, waiting := p.pending[key]; waiting {
			newer.seen = c.seen
			p.pending[key] = newer
			continue
		}
		p.pending[key] = c
	}
}

// claim has the keeper refuse what was sent before. A transaction that was not answered may still be on its way, and would put what is old
// over what is written next.
func (p *pair) claim(ctx context.Context) error {
	revision, err := p.keeper.Txn(ctx, p.term, nil, cellstore.Put(guardKey(p.source), nil))
	if err == nil {
		p.guard = revision
	}
	return err
}

// vouch notes at the keeper that it has all copies of some slots as they were at a revision, and none but those are its business.
func (p *pair) vouch(ctx context.Context, scope slotSet, revision int64) error {
	w := writer{pair: p, operations: []clientv3.Op{cellstore.Put(scopeKey(p.source), scope[:])}}
	return w.flushAt(ctx, revision)
}

// remove deletes copies that the keeper should no longer have.
func (p *pair) remove(ctx context.Context, keys []string) error {
	w := writer{pair: p}
	for _, key := range keys {
		if err := w.put(ctx, key, nil); err != nil {
			return err
		}
	}
	return w.flush(ctx)
}

// retryDelay is how soon a keeper that did not answer is tried again.
var retryDelay = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second}

// follow writes what is noted until the context ends. Its error means that the keeper has to be compared anew.
func (p *pair) follow(ctx context.Context) error {
	delay := retryDelay
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		}
		carried, err := p.write(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			delay = retryDelay
			if carried && !rest(ctx, writeInterval) {
				return nil
			}
			continue
		case errors.Is(err, cellstore.ErrDeposed) || errors.Is(err, errCompareAnew):
			return err
		}
		klog.FromContext(ctx).V(1).Info("A keeper of backups does not answer; trying again", "cell", p.source, "keeper", p.keeper.Cell, "err", err)
		if !rest(ctx, delay.Step()) {
			return nil
		}
		p.reach(0) // wake up again
	}
}

// rest waits, and reports whether there is anything to do after it.
func rest(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}

var errCompareAnew = errors.New("the keeper has to be compared anew")

// write writes everything that is pending, and reports whether there was anything that had to reach the keeper.
func (p *pair) write(ctx context.Context) (carried bool, err error) {
	changes, through, err := p.take()
	if err != nil {
		return false, fmt.Errorf("%w: %w", errCompareAnew, err)
	}
	if len(changes) == 0 && p.now().Sub(p.told) < idleInterval {
		p.reached(through)
		return false, nil
	}
	w := writer{pair: p}
	for key, c := range changes {
		if err = w.put(ctx, key, c.value); err != nil {
			break
		}
	}
	if err == nil {
		err = w.flushAt(ctx, through)
	}
	if err != nil {
		p.giveBack(changes)
		return false, err
	}
	p.told = p.now()
	lag := lagSeconds.WithLabelValues(p.source, p.keeper.Cell)
	for _, c := range changes {
		lag.Observe(p.told.Sub(c.seen).Seconds())
	}
	copiedKeys.WithLabelValues(p.source, p.keeper.Cell).Add(float64(len(changes)))
	p.reached(through)
	return true, nil
}

// reached notes that the keeper has everything up to a revision.
func (p *pair) reached(revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written, p.writing = revision, nil
}

// standing is how far a pair is.
type standing struct {
	synced  bool
	written int64
	pending int
	oldest  time.Time // of what is pending
}

func (p *pair) standing() standing {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := standing{synced: p.synced, written: p.written, pending: len(p.pending)}
	for key := range p.writing {
		if _, again := p.pending[key]; !again {
			s.pending++
		}
	}
	for _, part := range []map[string]change{p.pending, p.writing} {
		for _, c := range part {
			if s.oldest.IsZero() || c.seen.Before(s.oldest) {
				s.oldest = c.seen
			}
		}
	}
	return s
}

func (p *pair) markSynced() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.synced = true
}

// writer gathers keys into transactions.
type writer struct {
	*pair
	operations []clientv3.Op
	bytes      int
}

func (w *writer) put(ctx context.Context, key string, value []byte) error {
	if len(w.operations) > 0 && (len(w.operations) >= batch || w.bytes+len(value) > batchBytes) {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	full := Prefix(w.source) + key
	if value == nil {
		w.operations = append(w.operations, cellstore.Delete(full))
	} else {
		w.operations = append(w.operations, cellstore.Put(full, value))
	}
	w.bytes += len(value)
	return nil
}

func (w *writer) flush(ctx context.Context) error {
	if len(w.operations) == 0 {
		return nil
	}
	if w.guard == 0 {
		if err := w.claim(ctx); err != nil {
			return err
		}
	}
	_, err := w.keeper.Txn(ctx, w.term, []clientv3.Cmp{cellstore.Unchanged(guardKey(w.source), w.guard)}, w.operations...)
	w.operations, w.bytes = w.operations[:0], 0
	if err != nil {
		w.guard = 0
	}
	return err
}

// flushAt writes what is left together with how far the copies now reach.
func (w *writer) flushAt(ctx context.Context, revision int64) error {
	reached, err := json.Marshal(progress{Revision: revision, Time: w.now()})
	if err != nil {
		return err
	}
	w.operations = append(w.operations, cellstore.Put(progressKey(w.source), reached))
	return w.flush(ctx)
}
