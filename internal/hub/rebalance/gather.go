package rebalance

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellplane/cellplane/internal/cellstore"
)

// Bounds of a transaction. etcd takes 128 operations and 1.5 MiB by default.
const (
	batchKeys  = 64
	batchBytes = 1 << 20
)

// gatherer lets several objects share a request. Whoever comes while one is under way goes with the next, so that nobody waits when
// there is nothing to wait for, and the more is to do, the less each costs.
type gatherer[Q, A any] struct {
	// ctx ends all requests. It is not that of whoever asks: others may share the request.
	ctx context.Context
	// do answers all questions, in order.
	do func(ctx context.Context, questions []Q) ([]A, error)
	// size of a question, of which there may be batchBytes in a request.
	size func(Q) int

	mu      sync.Mutex
	waiting []asked[Q, A]
	running bool
	runs    sync.WaitGroup
}

// asked is a question that waits for its answer.
type asked[Q, A any] struct {
	question Q
	answer   chan answer[A]
}

type answer[A any] struct {
	value A
	err   error
}

// ask returns the answer to a question. If the context ends before there is one, what was asked for may still be done.
func (g *gatherer[Q, A]) ask(ctx context.Context, question Q) (A, error) {
	a := asked[Q, A]{question, make(chan answer[A], 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, a)
	if !g.running {
		g.running = true
		g.runs.Go(g.run)
	}
	g.mu.Unlock()
	select {
	case answer := <-a.answer:
		return answer.value, answer.err
	case <-ctx.Done():
		var none A
		return none, ctx.Err()
	}
}

func (g *gatherer[Q, A]) run() {
	for {
		batch := g.take()
		if len(batch) == 0 {
			return
		}
		questions := make([]Q, len(batch))
		for i := range batch {
			questions[i] = batch[i].question
		}
		answers, err := g.do(g.ctx, questions)
		for i := range batch {
			a := answer[A]{err: err}
			if err == nil {
				a.value = answers[i]
			}
			batch[i].answer <- a
		}
	}
}

// take returns as many of the questions as fit into a request.
func (g *gatherer[Q, A]) take() []asked[Q, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, size := 0, 0
	for n < len(g.waiting) && n < batchKeys {
		size += g.size(g.waiting[n].question)
		if n > 0 && size > batchBytes {
			break
		}
		n++
	}
	batch := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	g.running = n > 0
	return batch
}

// gathered is a store that several objects use together.
type gathered struct {
	store *cellstore.Store
	term  cellstore.Term
	took  func(time.Duration) // told of each write that goes alone
	reads gatherer[string, cellstore.KV]
	marks gatherer[put, stored]
}

// put is a value that replaces what was stored at a revision.
type put struct {
	key      string
	value    []byte
	revision int64
}

// stored is what became of a put.
type stored struct {
	revision int64
	err      error
}

// gather prepares a store for use until the context ends.
func gather(ctx context.Context, store *cellstore.Store, term cellstore.Term, took func(time.Duration)) *gathered {
	g := &gathered{store: store, term: term, took: took}
	g.reads.ctx, g.reads.do, g.reads.size = ctx, store.GetAll, func(string) int { return 0 }
	g.marks.ctx, g.marks.do, g.marks.size = ctx, g.putAll, func(p put) int { return len(p.value) }
	return g
}

// close waits for requests under way.
func (g *gathered) close() {
	g.reads.runs.Wait()
	g.marks.runs.Wait()
}

// read returns what is stored under a key; its ModRevision is 0 if nothing is.
func (g *gathered) read(ctx context.Context, key string) (cellstore.KV, error) {
	return g.reads.ask(ctx, key)
}

// write stores a value in a transaction of its own.
func (g *gathered) write(ctx context.Context, p put) (int64, error) {
	began := time.Now()
	revision, err := g.store.Txn(ctx, g.term, []clientv3.Cmp{cellstore.Unchanged(p.key, p.revision)}, cellstore.Put(p.key, p.value))
	g.took(time.Since(began))
	return revision, err
}

// writeTogether stores a value, perhaps in one transaction with others, and so at the same revision. Who resumes a watch between two
// events of one revision never gets the second: this is for what nobody needs to get.
func (g *gathered) writeTogether(ctx context.Context, p put) (int64, error) {
	result, err := g.marks.ask(ctx, p)
	return result.revision, errors.Join(err, result.err)
}

// putAll stores several values at once, or one by one if any of them has changed.
func (g *gathered) putAll(ctx context.Context, puts []put) ([]stored, error) {
	results := make([]stored, len(puts))
	if len(puts) > 1 {
		conditions, operations := make([]clientv3.Cmp, len(puts)), make([]clientv3.Op, len(puts))
		for i, p := range puts {
			conditions[i], operations[i] = cellstore.Unchanged(p.key, p.revision), cellstore.Put(p.key, p.value)
		}
		revision, err := g.store.Txn(ctx, g.term, conditions, operations...)
		for i := range results {
			results[i].revision = revision
		}
		if !errors.Is(err, cellstore.ErrConflict) {
			return results, err
		}
	}
	for i, p := range puts {
		results[i].revision, results[i].err = g.write(ctx, p)
	}
	return results, nil
}
