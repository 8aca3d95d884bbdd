package backup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// source follows the store of one cell under one topology.
type source struct {
	topology *slots.Map
	cell     slots.Index
	store    *cellstore.Store
	keepers  map[slots.Index]*cellstore.Store // all other cells, whether they keep something or not
	term     cellstore.Term
	// comparing lets in as many sources as may compare all of their keepers at once.
	comparing chan struct{}

	mu    sync.Mutex
	pairs map[slots.Index]*pair
}

// run follows the store until the context ends, or until it has to begin anew.
func (s *source) run(ctx context.Context) error {
	revision, err := s.store.Revision(ctx)
	if err != nil {
		return err
	}
	pairs := map[slots.Index]*pair{}
	for i, keeper := range s.keepers {
		pairs[i] = newPair(s.store.Cell, keeper, s.term, revision)
	}
	s.mu.Lock()
	s.pairs = pairs
	s.mu.Unlock()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.watch(ctx, pairs, revision) })
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

// serve keeps one keeper up to date after it has been compared. One that cannot be reached is tried again without disturbing the others.
func (s *source) serve(ctx context.Context, i slots.Index, c *comparison, revision int64, compared *sync.WaitGroup) error {
	once := sync.OnceFunc(compared.Done)
	defer once()
	delay := retryDelay
	p := c.pair
	for c.err != nil {
		if ctx.Err() != nil {
			return nil
		}
		// A store forgets what it was: a keeper that was away for so long is compared with what the source is now.
		if errors.Is(c.err, cellstore.ErrDeposed) || errors.Is(c.err, rpctypes.ErrCompacted) || !s.answers(ctx) {
			return c.err
		}
		klog.FromContext(ctx).V(1).Info("A keeper of backups cannot be compared; trying again", "cell", s.store.Cell, "keeper", p.keeper.Cell, "err", c.err)
		once() // nobody waits for a keeper that is away
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay.Step()):
		}
		c = s.compare(ctx, map[slots.Index]*pair{i: p}, revision)[i]
	}
	p.markSynced()
	once()
	// Only when every copy is where it belongs, those that are not needed any more go.
	if !waitFor(ctx, compared) {
		return nil
	}
	if err := p.remove(ctx, c.stale()); err != nil {
		return err
	}
	p.reach(0)
	return p.follow(ctx)
}

// answers reports whether it is the keeper's fault that a comparison failed.
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

// keeperOf returns whose business it is what is stored under a key, slots.None if nobody's, and whether that one is to keep a copy: it is
// not if the object has just left.
func (s *source) keeperOf(ctx context.Context, relative string, value []byte) (keeper slots.Index, kept bool) {
	if ignored(relative) {
		return slots.None, false
	}
	object, err := cellstore.Parse(value)
	if err != nil {
		// What is no object of the API, such as a range of addresses, belongs to the API server alone.
		klog.FromContext(ctx).V(4).Info("Not backed up, as it is no object", "cell", s.store.Cell, "key", relative, "reason", err)
		return slots.None, false
	}
	class, slot := cellstore.Classify(object)
	if !class.Federated() {
		return slots.None, false
	}
	return keeperOf(s.topology, s.cell, slot), !isLeftover(object)
}

// progressInterval is how often an idle watch is asked how far it is.
const progressInterval = 5 * time.Second

// watch passes the changes after a revision on to the pairs.
func (s *source) watch(ctx context.Context, pairs map[slots.Index]*pair, revision int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	stream := s.store.Client().Watch(ctx, s.store.Prefix(), clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
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
				s.pass(ctx, pairs, event)
			}
			through := cellstore.Through(response)
			for _, p := range pairs {
				p.reach(through)
			}
		}
	}
}

// pass passes a change on to whoever keeps the object. Who kept what has been deleted is not worth finding out: all are told.
func (s *source) pass(ctx context.Context, pairs map[slots.Index]*pair, event *clientv3.Event) {
	relative, _ := s.store.Relative(string(event.Kv.Key))
	if ignored(relative) {
		return
	}
	if event.Type == clientv3.EventTypeDelete {
		for _, p := range pairs {
			p.note(relative, nil)
		}
		return
	}
	keeper, kept := s.keeperOf(ctx, relative, event.Kv.Value)
	p := pairs[keeper]
	switch {
	case p == nil: // what nobody should have is found by comparing
	case kept:
		p.note(relative, event.Kv.Value)
	default:
		p.note(relative, nil)
	}
}

// standings returns how far each keeper is, by name, and whether the store is followed at all.
func (s *source) standings() (all map[string]standing, begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all = make(map[string]standing, len(s.pairs))
	for _, p := range s.pairs {
		all[p.keeper.Cell] = p.standing()
	}
	return all, s.pairs != nil
}
