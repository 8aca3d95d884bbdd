package queue_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// What fails for a day is tried with pauses that grow up to a bound, not in a loop; and when somebody knows that it is
// worth a try, it waits for no pause.
func TestLongFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const longest = time.Hour
		q := queue.NewWithPauses[string]("test", time.Second, longest)
		ctx, cancel := context.WithCancel(t.Context())
		var tries atomic.Int32
		var repaired atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			q.Run(ctx, 2, func(context.Context, string) error {
				if tries.Add(1); !repaired.Load() {
					return errors.New("still broken")
				}
				return nil
			})
		}()
		q.Add("key")
		<-time.After(24 * time.Hour)
		// 12 pauses grow from a second to an hour; the others are an hour each.
		if n := tries.Load(); n < 24 || n > 24+13 {
			t.Errorf("it was tried %d times in a day", n)
		}
		repaired.Store(true)
		before := tries.Load()
		q.AddNow("key")
		synctest.Wait()
		if n := tries.Load(); n != before+1 {
			t.Errorf("it was tried %d times when it was worth it, want once, at once", n-before)
		}
		cancel()
		<-done
	})
}
