package rebalance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// TestBatcher makes many calls while a request is under way: they go into the next requests, as many as fit, and each
// gets its own answer.
func TestBatcher(t *testing.T) {
	const callers = 3*batchKeys + 1
	var b batcher[int, string]
	var requests []int
	first, more := make(chan struct{}), make(chan struct{})
	b.ctx, b.size = t.Context(), func(int) int { return 1 }
	b.send = func(_ context.Context, queries []int) ([]string, error) {
		if requests = append(requests, len(queries)); len(requests) == 1 {
			close(first)
			<-more
		}
		answers := make([]string, len(queries))
		for i, q := range queries {
			answers[i] = fmt.Sprint(q)
		}
		return answers, nil
	}
	var group sync.WaitGroup
	do := func(i int) {
		group.Go(func() {
			if got, err := b.do(t.Context(), i); err != nil || got != fmt.Sprint(i) {
				t.Errorf("query %d: got %s, %v", i, got, err)
			}
		})
	}
	do(0)
	<-first
	for i := 1; i < callers; i++ {
		do(i)
	}
	for waiting := 0; waiting < callers-1; {
		b.mu.Lock()
		waiting = len(b.waiting)
		b.mu.Unlock()
	}
	close(more)
	group.Wait()
	b.runs.Wait()
	if want := []int{1, batchKeys, batchKeys, batchKeys}; !slices.Equal(requests, want) {
		t.Errorf("requests of %v queries, want %v", requests, want)
	}
}

// TestBatcherBounds checks that a query too large to share a request gets its own, and that a failed request fails
// all its callers.
func TestBatcherBounds(t *testing.T) {
	b := batcher[int, int]{ctx: t.Context(), size: func(size int) int { return size }}
	for _, size := range []int{batchBytes / 2, batchBytes / 2, 1, 2 * batchBytes, 7} {
		b.waiting = append(b.waiting, call[int, int]{query: size})
	}
	for _, want := range []int{2, 1, 1, 1, 0} {
		if got := len(b.take()); got != want {
			t.Errorf("%d queries in a request, want %d", got, want)
		}
	}
	problem := errors.New("no answer")
	b.send = func(context.Context, []int) ([]int, error) { return nil, problem }
	if _, err := b.do(t.Context(), 1); !errors.Is(err, problem) {
		t.Errorf("got %v", err)
	}
}
