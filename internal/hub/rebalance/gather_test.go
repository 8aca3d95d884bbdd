package rebalance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// TestGatherer lets many ask while a request is under way: they go together, as many as fit, and each gets its own answer.
func TestGatherer(t *testing.T) {
	const askers = 3*batchKeys + 1
	var g gatherer[int, string]
	var requests []int
	first, more := make(chan struct{}), make(chan struct{})
	g.ctx, g.size = t.Context(), func(int) int { return 1 }
	g.do = func(_ context.Context, questions []int) ([]string, error) {
		if requests = append(requests, len(questions)); len(requests) == 1 {
			close(first)
			<-more
		}
		answers := make([]string, len(questions))
		for i, q := range questions {
			answers[i] = fmt.Sprint(q)
		}
		return answers, nil
	}
	var group sync.WaitGroup
	ask := func(i int) {
		group.Go(func() {
			if got, err := g.ask(t.Context(), i); err != nil || got != fmt.Sprint(i) {
				t.Errorf("%d was answered with %s, %v", i, got, err)
			}
		})
	}
	ask(0)
	<-first
	for i := 1; i < askers; i++ {
		ask(i)
	}
	for waiting := 0; waiting < askers-1; {
		g.mu.Lock()
		waiting = len(g.waiting)
		g.mu.Unlock()
	}
	close(more)
	group.Wait()
	g.runs.Wait()
	if want := []int{1, batchKeys, batchKeys, batchKeys}; !slices.Equal(requests, want) {
		t.Errorf("the requests were for %v, want %v", requests, want)
	}
}

// TestGathererBounds shows that what is too large for a request with others goes alone, and that a failed request fails all who asked.
func TestGathererBounds(t *testing.T) {
	g := gatherer[int, int]{ctx: t.Context(), size: func(size int) int { return size }}
	for _, size := range []int{batchBytes / 2, batchBytes / 2, 1, 2 * batchBytes, 7} {
		g.waiting = append(g.waiting, asked[int, int]{question: size})
	}
	for _, want := range []int{2, 1, 1, 1, 0} {
		if got := len(g.take()); got != want {
			t.Errorf("%d go together, want %d", got, want)
		}
	}
	problem := errors.New("no answer")
	g.do = func(context.Context, []int) ([]int, error) { return nil, problem }
	if _, err := g.ask(t.Context(), 1); !errors.Is(err, problem) {
		t.Errorf("got %v", err)
	}
}
