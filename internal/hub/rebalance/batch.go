package rebalance

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellplane/cellplane/internal/cellstore"
)

// Bounds of a transaction. etcd accepts 128 operations and 1.5 MiB by default.
const (
	batchKeys  = 64
	batchBytes = 1 << 20
)

// batcher combines calls into requests. Calls made while a request is under way go into the next one, so a single
// call never waits, and many calls cost less each.
type batcher[Q, A any] struct {
	// ctx ends all requests. It is not the caller's: others may share the request.
	ctx context.Context
	// send answers all queries, in order.
	send func(ctx context.Context, queries []Q) ([]A, error)
	// size of a query. A request holds up to batchBytes.
	size func(Q) int

	mu      sync.Mutex
	waiting []call[Q, A]
	running bool
	runs    sync.WaitGroup
}

// call is a query that waits for its answer.
type call[Q, A any] struct {
	query  Q
	answer chan answer[A]
}

type answer[A any] struct {
	value A
	err   error
}

// do returns the answer to a query. If the context ends before there is one, the query may still be executed.
func (b *batcher[Q, A]) do(ctx context.Context, query Q) (A, error) {
	c := call[Q, A]{query, make(chan answer[A], 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, c)
	if !b.running {
		b.running = true
		b.runs.Go(b.run)
	}
	b.mu.Unlock()
	select {
	case answer := <-c.answer:
		return answer.value, answer.err
	case <-ctx.Done():
		var none A
		return none, ctx.Err()
	}
}

func (b *batcher[Q, A]) run() {
	for {
		calls := b.take()
		if len(calls) == 0 {
			return
		}
		queries := make([]Q, len(calls))
		for i := range calls {
			queries[i] = calls[i].query
		}
		answers, err := b.send(b.ctx, queries)
		for i := range calls {
			a := answer[A]{err: err}
			if err == nil {
				a.value = answers[i]
			}
			calls[i].answer <- a
		}
	}
}

// take returns as many calls as fit into a request.
func (b *batcher[Q, A]) take() []call[Q, A] {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, size := 0, 0
	for n < len(b.waiting) && n < batchKeys {
		size += b.size(b.waiting[n].query)
		if n > 0 && size > batchBytes {
			break
		}
		n++
	}
	calls := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	b.running = n > 0
	return calls
}

// sharedStore is a store whose requests are shared by several objects.
type sharedStore struct {
	store   *cellstore.Store
	term    cellstore.Term
	observe func(time.Duration) // is given the duration of each write of a single object
	reads   batcher[string, cellstore.KV]
	writes  batcher[put, stored]
}

// put is a value that replaces what was stored at a revision.
type put struct {
	key      string
	value    []byte
	revision int64
}

// stored is the result of a put.
type stored struct {
	revision int64
	err      error
}

// newSharedStore returns a store for use until the context ends.
func newSharedStore(ctx context.Context, store *cellstore.Store, term cellstore.Term, observe func(time.Duration)) *sharedStore {
	s := &sharedStore{store: store, term: term, observe: observe}
	s.reads.ctx, s.reads.send, s.reads.size = ctx, store.GetAll, func(string) int { return 0 }
	s.writes.ctx, s.writes.send, s.writes.size = ctx, s.putAll, func(p put) int { return len(p.value) }
	return s
}

// close waits for requests under way.
func (s *sharedStore) close() {
	s.reads.runs.Wait()
	s.writes.runs.Wait()
}

// read returns what is stored under a key; its ModRevision is 0 if nothing is.
func (s *sharedStore) read(ctx context.Context, key string) (cellstore.KV, error) {
	return s.reads.do(ctx, key)
}

// write stores a value in a transaction of its own.
func (s *sharedStore) write(ctx context.Context, p put) (int64, error) {
	began := time.Now()
	revision, err := s.store.Txn(ctx, s.term, []clientv3.Cmp{cellstore.Unchanged(p.key, p.revision)}, cellstore.Put(p.key, p.value))
	s.observe(time.Since(began))
	return revision, err
}

// writeShared stores a value, perhaps in one transaction with others and so at the same revision. A watch that is
// resumed between two events of one revision never receives the second: see handover.Step.SharesRevision.
func (s *sharedStore) writeShared(ctx context.Context, p put) (int64, error) {
	result, err := s.writes.do(ctx, p)
	return result.revision, errors.Join(err, result.err)
}

// putAll stores several values in one transaction, or each in its own if any of them has changed.
func (s *sharedStore) putAll(ctx context.Context, puts []put) ([]stored, error) {
	results := make([]stored, len(puts))
	if len(puts) > 1 {
		conditions, operations := make([]clientv3.Cmp, len(puts)), make([]clientv3.Op, len(puts))
		for i, p := range puts {
			conditions[i], operations[i] = cellstore.Unchanged(p.key, p.revision), cellstore.Put(p.key, p.value)
		}
		revision, err := s.store.Txn(ctx, s.term, conditions, operations...)
		for i := range results {
			results[i].revision = revision
		}
		if !errors.Is(err, cellstore.ErrConflict) {
			return results, err
		}
	}
	for i, p := range puts {
		results[i].revision, results[i].err = s.write(ctx, p)
	}
	return results, nil
}
