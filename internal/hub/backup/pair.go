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
	// batch is the maximum number of keys in a transaction. etcd allows 128 operations by default.
	batch = 100
	// batchBytes bounds a transaction; etcd takes 1.5 MiB by default, and an object may be as large.
	batchBytes = 512 << 10
	// writeInterval is the minimum time between two writes of copies to a backup cell. Changes in between are written
	// together, the newest value of each key. It is most of the lag, and bounds what is lost with a cell.
	writeInterval = 500 * time.Millisecond
	// maxPending is how many keys may wait for an unreachable backup cell before it is compared again instead.
	maxPending = 100_000
)

// change is the newest change of a key.
type change struct {
	value []byte // nil for a deletion
	seen  time.Time
}

// pair writes the copies of one cell to one backup cell.
type pair struct {
	source string // the cell's name
	target *cellstore.Store
	term   cellstore.Term
	now    func() time.Time

	wake   chan struct{}
	urgent chan struct{} // ends the pause between two writes
	// progressed, if not nil, is told whenever more has been written.
	progressed *notifier
	epoch      int64       // of the topology by which the copies are placed
	identity   string      // of the source's store
	inUse      func() bool // whether an object may ask for durability; nil means that it may
	// admits, if not nil, returns an error if the backup cell would not encrypt what the source encrypts.
	admits func(ctx context.Context) error
	// room, if not nil, returns an error if the backup cell has no room for copies.
	room func() error

	mu      sync.Mutex
	pending map[string]change // by key without prefix
	writing map[string]change // taken from pending and not acknowledged yet
	through int64             // the source's revision up to which everything is pending or written
	from    int64             // the source's revision with which it began; never changes
	tooMany bool
	due     bool // a change that was added has to be copied at once
	hurried bool // what is pending has to be copied, and reported, at once

	written int64 // the source's revision up to which everything is written
	synced  bool

	proofs     []proof   // those that the backup cell has not confirmed yet
	proven     time.Time // the time of the last proof
	attempted  time.Time // when the write under way began
	unanswered time.Time // since when writes have failed
	problem    problem   // if that is why

	// Only the goroutine that writes uses this.
	guard int64 // the revision of the guard that writes compare; 0 if it has to be claimed first
}

func newPair(source string, target *cellstore.Store, term cellstore.Term, revision int64) *pair {
	return &pair{
		source: source, target: target, term: term, now: time.Now, wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
		pending: map[string]change{}, through: revision, from: revision,
	}
}

// add takes a change from the watch of the source.
func (p *pair) add(key string, value []byte) {
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

// addAt takes a change that was made at a revision. The backup cell already has those up to where the pair began.
func (p *pair) addAt(key string, value []byte, revision int64) {
	if revision > p.from {
		p.add(key, value)
	}
}

// advance records that all changes up to a revision have been added.
func (p *pair) advance(revision int64) {
	p.mu.Lock()
	p.through = max(p.through, revision)
	due := p.due
	p.due, p.hurried = false, p.hurried || due
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	if due {
		p.hurry()
	}
}

// setDue has the changes up to the next advance be copied at once.
func (p *pair) setDue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = true
}

// hurry has the next write begin at once.
func (p *pair) hurry() {
	select {
	case p.urgent <- struct{}{}:
	default:
	}
}

// pause waits until the next write may begin, and reports whether the context is still valid then.
func (p *pair) pause(ctx context.Context) bool {
	timer := time.NewTimer(writeInterval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-p.urgent:
	}
	return true
}

// take returns everything that is pending.
func (p *pair) take() (taken batchOf, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tooMany {
		return taken, fmt.Errorf("more than %d changes are pending", maxPending)
	}
	taken = batchOf{changes: p.pending, through: p.through, hurried: p.hurried}
	p.pending, p.writing, p.hurried = map[string]change{}, taken.changes, false
	return taken, nil
}

// batchOf is what is written together.
type batchOf struct {
	changes map[string]change
	through int64 // the source's revision that the backup cell reaches with it
	hurried bool  // somebody waits for it
}

// restore makes changes that could not be written pending again, unless there are newer ones.
func (p *pair) restore(taken batchOf) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing, p.hurried = nil, p.hurried || taken.hurried
	for key, c := range taken.changes {
		if newer, waiting := p.pending[key]; waiting {
			newer.seen = c.seen
			p.pending[key] = newer
			continue
		}
		p.pending[key] = c
	}
}

// claim writes a new guard, so that the backup cell refuses everything sent before. A transaction that was not
// answered may still be executed, and would overwrite newer copies.
func (p *pair) claim(ctx context.Context) error {
	revision, err := p.target.Txn(ctx, p.term, nil, cellstore.Put(guardKey(p.source), nil))
	if err == nil {
		p.guard = revision
	}
	return err
}

// setScope records in the backup cell that its copies of some slots are complete as of a revision.
func (p *pair) setScope(ctx context.Context, scope slotSet, revision int64) error {
	w := writer{pair: p, operations: []clientv3.Op{cellstore.Put(scopeKey(p.source), scope[:])}}
	return w.flushAt(ctx, revision)
}

// remove deletes stale copies.
func (p *pair) remove(ctx context.Context, keys []string) error {
	w := writer{pair: p}
	for _, key := range keys {
		if err := w.put(ctx, key, nil); err != nil {
			return err
		}
	}
	return w.flush(ctx)
}

// retryDelay is the back-off for stores that do not answer.
var retryDelay = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second}

// follow writes changes until the context ends. An error means that the backup cell has to be compared again.
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
			if carried && !p.pause(ctx) {
				return nil
			}
			continue
		case errors.Is(err, cellstore.ErrFenced) || errors.Is(err, errCompareAgain):
			return err
		case p.target.Closed():
			return closedError(p.target, err)
		}
		klog.FromContext(ctx).V(1).Info("backup cell does not answer, retrying", "cell", p.source, "backupCell", p.target.Cell, "err", err)
		if !sleep(ctx, delay.Step()) {
			return nil
		}
		p.advance(0) // wake up again
	}
}

// sleep waits, and reports whether the context is still valid after it.
func sleep(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}

var errCompareAgain = errors.New("the backup cell has to be compared again")

// closedError is the error of a backup cell whose connection was closed. It has to be opened again.
func closedError(target *cellstore.Store, err error) error {
	return fmt.Errorf("%w: the connection to cell %s was closed: %w", errCompareAgain, target.Cell, err)
}

// write writes everything that is pending, and reports whether there was anything.
func (p *pair) write(ctx context.Context) (carried bool, err error) {
	taken, err := p.take()
	if err != nil {
		return false, fmt.Errorf("%w: %w", errCompareAgain, err)
	}
	changes, through := taken.changes, taken.through
	if p.room != nil {
		if full := p.room(); full != nil && len(additions(changes)) > 0 {
			return false, p.writeDeletions(ctx, taken, full)
		}
	}
	if len(changes) == 0 && !taken.hurried && !p.provable(through) {
		p.setWritten(through)
		return false, nil
	}
	ended := p.attempt()
	w := writer{pair: p}
	if p.admits != nil {
		err = p.admits(ctx)
	}
	for key, c := range changes {
		if err == nil {
			err = w.put(ctx, key, c.value)
		}
	}
	if err == nil {
		err = w.report(ctx, through)
	}
	if err == nil {
		err = w.flushAt(ctx, through)
	}
	if ctx.Err() == nil {
		ended(err)
	}
	if err != nil {
		p.restore(taken)
		return false, err
	}
	now := p.now()
	took := copySeconds.WithLabelValues(p.source, p.target.Cell)
	for _, c := range changes {
		took.Observe(now.Sub(c.seen).Seconds())
	}
	copiedKeys.WithLabelValues(p.source, p.target.Cell).Add(float64(len(changes)))
	p.confirm(through)
	p.setWritten(through)
	return len(changes) > 0, nil
}

// writeDeletions writes those changes that a backup cell without room can take. The others stay pending, and the error says why.
func (p *pair) writeDeletions(ctx context.Context, taken batchOf, full error) error {
	ended := p.attempt()
	w := writer{pair: p}
	var err error
	for key, c := range taken.changes {
		if err == nil && c.value == nil {
			err = w.put(ctx, key, nil)
		}
	}
	if err == nil {
		err = w.flush(ctx)
	}
	if err == nil {
		taken.changes, err = additions(taken.changes), full
	}
	if ctx.Err() == nil {
		ended(err)
	}
	p.restore(taken)
	return err
}

// setWritten records that the backup cell has everything up to a revision.
func (p *pair) setWritten(revision int64) {
	p.mu.Lock()
	p.written, p.writing = revision, nil
	p.mu.Unlock()
	p.progressed.notify()
}

// pairState is how far a pair is.
type pairState struct {
	synced  bool
	written int64
	pending int
	oldest  time.Time // of what is pending
	proven  time.Time // of the last proof
	silent  time.Time // since when the backup cell does not answer
	problem problem   // why it is not written to although it answers
}

func (p *pair) state() pairState {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := pairState{synced: p.synced, written: p.written, pending: len(p.pending), proven: p.proven, silent: p.silence(), problem: p.problem}
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

// writer collects keys into transactions.
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
	_, err := w.target.Txn(ctx, w.term, []clientv3.Cmp{cellstore.Unchanged(guardKey(w.source), w.guard)}, w.operations...)
	w.operations, w.bytes = w.operations[:0], 0
	if err != nil {
		w.guard = 0
	}
	return err
}

// flushAt writes the remaining keys together with the revision that the copies reach now.
func (w *writer) flushAt(ctx context.Context, revision int64) error {
	reached, err := json.Marshal(progress{Revision: revision, Time: w.now(), Store: w.identity})
	if err != nil {
		return err
	}
	w.operations = append(w.operations, cellstore.Put(progressKey(w.source), reached))
	return w.flush(ctx)
}
