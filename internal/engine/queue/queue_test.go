package queue_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cellplane/cellplane/internal/engine/queue"
)

// Keys of a higher priority come first, whatever the order they came in; those of the same in their order.
func TestPriority(t *testing.T) {
	priorities := map[string]int{"low": 0, "first": 10, "second": 10, "high": 100}
	q := queue.NewWithPriority("test", time.Millisecond, time.Second, func(key string) int { return priorities[key] })
	for _, key := range []string{"low", "first", "second", "high"} {
		q.Add(key)
	}
	var got []string
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	q.Run(ctx, 1, func(_ context.Context, key string) error {
		if got = append(got, key); len(got) == len(priorities) {
			cancel()
		}
		return nil
	})
	if want := []string{"high", "first", "second", "low"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// What failed or asked for later comes again, and at once when somebody says so.
func TestLaterIsCutShort(t *testing.T) {
	q := queue.NewWithPriority("test", time.Millisecond, time.Second, func(string) int { return 0 })
	var mu sync.Mutex
	rounds := 0
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	q.Add("key")
	q.Run(ctx, 1, func(_ context.Context, key string) error {
		mu.Lock()
		defer mu.Unlock()
		switch rounds++; rounds {
		case 1:
			time.AfterFunc(0, func() { q.AddNow(key) })
			return queue.Later{After: time.Hour}
		case 2:
			return context.DeadlineExceeded
		default:
			cancel()
			return nil
		}
	})
	if rounds != 3 {
		t.Errorf("the key was worked on %d times, want 3", rounds)
	}
}
