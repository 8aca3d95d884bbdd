package backup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// source watches the store of one cell under one topology.
type source struct {
	epoch   int64
	places  *placements
	store   *cellstore.Store
	targets map[slots.Index]*cellstore.Store // all other cells, whether they hold copies or not
	term    cellstore.Term
	// identity is that of the store.
	identity string
	// resume, if not nil, is what each backup cell has received completely. They are not compared then.
	resume map[slots.Index]int64
	// comparing limits how many sources compare their backup cells at once.
	comparing chan struct{}
	// fullness, if not nil, returns why a backup cell has no room for copies; empty if it has.
	fullness func(cell string) string
	// began, if not nil, is called when the store of the cell has answered.
	began func()
	// progressed, if not nil, is told whenever more has been copied.
	progressed *notifier
	// inUse is set once an object with the annotation names.DurabilityAnnotation was seen.
	inUse atomic.Bool
	// asked has the watch request its progress at once.
	asked chan struct{}

	mu     sync.Mutex
	pairs  map[slots.Index]*pair
	unread time.Time // since when the store of the cell cannot be read; zero if it can
}

func (c *Controller) newSource(epoch int64, places *placements, store *cellstore.Store, targets map[slots.Index]*cellstore.Store) *source {
	return &source{
		epoch: epoch, places: places, store: store, targets: targets, term: c.Term, comparing: c.comparing, progressed: &c.progressed,
		asked: make(chan struct{}, 1),
	}
}

// scope returns the slots whose objects are copied to a backup cell.
func (s *source) scope(i slots.Index) slotSet { return scopeIn(s.places, i) }

// run backs the store up until the context ends, or until it has to start again.
func (s *source) run(ctx context.Context) error {
	if s.resume != nil {
		return s.runOn(ctx)
	}
	if err := s.identify(ctx); err != nil {
		return err
	}
	if err := s.checkAll(ctx); err != nil {
		return err
	}
	revision, err := s.store.Revision(ctx)
	if err != nil {
		return err
	}
	pairs := s.newPairs(func(slots.Index) int64 { return revision })
	if s.began != nil {
		s.began()
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.watch(ctx, pairs, revision) })
	group.Go(func() error { return s.prove(ctx, pairs) })
	var waiting sync.WaitGroup // each pair counts once, whether it succeeds or not
	waiting.Add(len(pairs))
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case s.comparing <- struct{}{}:
		}
		compared := s.compare(ctx, pairs, revision)
		<-s.comparing
		for i, first := range compared {
			group.Go(func() error { return s.serve(ctx, i, first, revision, &waiting) })
		}
		return nil
	})
	return group.Wait()
}

// runOn continues an earlier backup where each backup cell has received everything up to a revision.
func (s *source) runOn(ctx context.Context) error {
	pairs := s.newPairs(func(i slots.Index) int64 { return s.resume[i] })
	var revision int64
	for _, p := range pairs {
		if revision == 0 || p.from < revision {
			revision = p.from
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.watch(ctx, pairs, revision) })
	for _, p := range pairs {
		p.markSynced()
		group.Go(func() error { return p.follow(ctx) })
	}
	return group.Wait()
}

// newPairs begins the pairs of all backup cells, each after a revision.
func (s *source) newPairs(from func(slots.Index) int64) map[slots.Index]*pair {
	pairs := map[slots.Index]*pair{}
	for i, target := range s.targets {
		pairs[i] = newPair(s.store.Cell, target, s.term, from(i))
		pairs[i].progressed, pairs[i].epoch, pairs[i].identity, pairs[i].inUse = s.progressed, s.epoch, s.identity, s.inUse.Load
		pairs[i].admits = func(ctx context.Context) error { return target.Admits(ctx, s.store) }
		pairs[i].room = func() error { return s.roomIn(target.Cell) }
	}
	s.mu.Lock()
	s.pairs = pairs
	s.mu.Unlock()
	return pairs
}

// roomInterval is how often is looked whether a backup cell that lacks copies has room for them.
const roomInterval = 5 * time.Second

// serve keeps one backup cell up to date after it has been compared. An unreachable one is retried without delaying
// the others.
func (s *source) serve(ctx context.Context, i slots.Index, c *comparison, revision int64, compared *sync.WaitGroup) error {
	once := sync.OnceFunc(compared.Done)
	defer once()
	delay := retryDelay
	p := c.pair
	for c.err != nil {
		if ctx.Err() != nil {
			return nil
		}
		if p.target.Closed() {
			return closedError(p.target, c.err)
		}
		// After a compaction the backup cell has to be compared with the current state of the source.
		if errors.Is(c.err, cellstore.ErrFenced) || errors.Is(c.err, ErrReplaced) || errors.Is(c.err, rpctypes.ErrCompacted) || !s.answers(ctx) {
			return c.err
		}
		p.attempt()(c.err)
		klog.FromContext(ctx).V(1).Info("comparing a backup cell failed, retrying", "cell", s.store.Cell, "backupCell", p.target.Cell, "err", c.err)
		once()                                                              // others do not wait for an unreachable cell
		for errors.Is(c.err, errNoRoom) && s.roomIn(p.target.Cell) != nil { // a comparison costs much, and would find the same
			if !sleep(ctx, roomInterval) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay.Step()):
		}
		c = s.compare(ctx, map[slots.Index]*pair{i: p}, revision)[i]
	}
	p.markSynced()
	once()
	// Stale copies are removed only after every copy is where it belongs.
	if !waitFor(ctx, compared) {
		return nil
	}
	if err := p.remove(ctx, c.stale()); err != nil {
		return unreachable{p.target.Cell, err}
	}
	p.advance(0)
	return p.follow(ctx)
}

// answers reports whether the source answers, so that a failed comparison is due to the backup cell.
func (s *source) answers(ctx context.Context) bool {
	_, err := s.store.Revision(ctx)
	return err == nil
}

func waitFor(ctx context.Context, group *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-ctx.Done():
		return false
	case <-done:
		return true
	}
}

// backupCell returns the backup cell of what is stored under a key, slots.None if there is none, and whether it
// should have a copy: not if the object has moved away.
func (s *source) backupCell(ctx context.Context, relative string, value []byte) (target slots.Index, kept bool) {
	if ignored(relative) {
		return slots.None, false
	}
	object, err := cellstore.Parse(value)
	if err != nil {
		// Values that are no API objects, such as IP ranges, belong to the API server alone.
		klog.FromContext(ctx).V(4).Info("value is no API object, not backing it up", "cell", s.store.Cell, "key", relative, "err", err)
		return slots.None, false
	}
	class, slot := cellstore.Classify(object)
	if !class.Federated() {
		return slots.None, false
	}
	if object.Annotations[names.DurabilityAnnotation] != "" {
		s.inUse.Store(true)
	}
	return s.places[slot], !isStale(object)
}

// watch passes the changes after a revision to the pairs.
func (s *source) watch(ctx context.Context, pairs map[slots.Index]*pair, revision int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	stream := s.store.Client().Watch(ctx, s.store.Prefix(), clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.asked:
			_ = s.store.Client().RequestProgress(ctx) // the answer comes by the stream, or the next will
		case response, open := <-stream:
			if !open {
				if ctx.Err() != nil {
					return nil
				}
				return fmt.Errorf("the watch of cell %s ended", s.store.Cell)
			}
			if err := response.Err(); err != nil {
				return fmt.Errorf("watching cell %s: %w", s.store.Cell, err)
			}
			for _, event := range response.Events {
				if err := s.pass(ctx, pairs, event); err != nil {
					return err
				}
			}
			through := cellstore.Through(response)
			for _, p := range pairs {
				p.advance(through)
			}
		}
	}
}

// pass adds a change to the pair of the object's backup cell. Deletions go to all pairs: the deleted value is not
// known.
func (s *source) pass(ctx context.Context, pairs map[slots.Index]*pair, event *clientv3.Event) error {
	relative, _ := s.store.Relative(string(event.Kv.Key))
	if relative == markKey {
		for _, p := range pairs {
			p.setDue()
		}
		return nil
	}
	if ignored(relative) {
		return nil
	}
	if event.Type == clientv3.EventTypeDelete {
		for _, p := range pairs {
			p.addAt(relative, nil, event.Kv.ModRevision)
		}
		return nil
	}
	kv, err := s.store.Opened(ctx, event)
	if err != nil {
		return err
	}
	target, kept := s.backupCell(ctx, relative, kv.Value)
	p := pairs[target]
	if p != nil && mayBeReplicated(kv.Value) {
		p.setDue()
	}
	switch {
	case p == nil: // it has no backup cell
	case kept:
		p.addAt(relative, kv.Value, kv.ModRevision)
	default:
		p.addAt(relative, nil, event.Kv.ModRevision)
	}
	return nil
}

// states returns the states of the pairs by backup cell, whether the watch has begun, and since when the cell cannot be
// read.
func (s *source) states() (all map[string]pairState, begun bool, unread time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all = make(map[string]pairState, len(s.pairs))
	for _, p := range s.pairs {
		all[p.target.Cell] = p.state()
	}
	return all, s.pairs != nil, s.unread
}
