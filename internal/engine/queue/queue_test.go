package queue_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/cellplane/cellplane/internal/engine/queue"
)

// TestPriority checks that keys of a higher priority come first, and that keys of the same priority keep their order.
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

// TestAddNow checks that AddNow ends the delay of a key, and that failures are retried.
func TestAddNow(t *testing.T) {
	q := queue.NewWithPriority("test", time.Millisecond, time.Second, func(string) int { return 0 })
	var mu sync.Mutex
	attempts := 0
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	q.Add("key")
	q.Run(ctx, 1, func(_ context.Context, key string) error {
		mu.Lock()
		defer mu.Unlock()
		switch attempts++; attempts {
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
	if attempts != 3 {
		t.Errorf("the key was reconciled %d times, want 3", attempts)
	}
}

// TestLongFailure checks that a key that fails for a day is retried with a bounded back-off and logged a few times, and
// that AddNow ends the back-off.
func TestLongFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const longest = time.Hour
		q := queue.NewWithBackoff[string]("test", time.Second, longest)
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		var attempts atomic.Int32
		var repaired atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			q.Run(ctx, 2, func(context.Context, string) error {
				if attempts.Add(1); !repaired.Load() {
					return errors.New("still broken")
				}
				return nil
			})
		}()
		q.Add("key")
		<-time.After(24 * time.Hour)
		// 12 delays grow from a second to an hour; the others are an hour each.
		if n := attempts.Load(); n < 24 || n > 24+13 {
			t.Errorf("%d attempts in a day", n)
		}
		// The first failure and the retries 1, 2, 4, 8, 16 and 32.
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if n := strings.Count(log, "still broken"); n < 6 || n > 7 || !strings.Contains(log, `queue="test" key="key" retries=16`) {
			t.Errorf("%d failures were logged:\n%s", n, log)
		}
		repaired.Store(true)
		before := attempts.Load()
		q.AddNow("key")
		synctest.Wait()
		if n := attempts.Load(); n != before+1 {
			t.Errorf("AddNow led to %d attempts, want one at once", n-before)
		}
		cancel()
		<-done
	})
}
