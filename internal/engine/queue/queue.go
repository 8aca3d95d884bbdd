// Package queue runs reconcilers: keys come in, each key is worked on by one worker at a time, failures are tried again.
package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// Queue holds keys until somebody runs it; whoever stands by collects what there will be to do.
type Queue[K comparable] struct {
	name  string
	queue workqueue.TypedRateLimitingInterface[K]
	// ranked is the same queue if keys have priorities.
	ranked   priorityqueue.PriorityQueue[K]
	priority func(K) int
}

// The pause after a failure doubles from the first to the longest.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = 30 * time.Second
)

// New returns an empty queue.
func New[K comparable](name string) *Queue[K] {
	return NewWithPauses[K](name, firstPause, longestPause)
}

// NewWithPauses returns an empty queue with its own pauses after failures.
func NewWithPauses[K comparable](name string, first, longest time.Duration) *Queue[K] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](first, longest)
	return &Queue[K]{name: name, queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[K]{})}
}

// NewWithPriority returns an empty queue that hands out keys of a higher priority first, those of the same in the order
// they came.
func NewWithPriority[K comparable](name string, first, longest time.Duration, priority func(K) int) *Queue[K] {
	const unmeasured = "" // the library has metrics only for queues with names
	ranked := priorityqueue.New(unmeasured, func(o *priorityqueue.Opts[K]) {
		o.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[K](first, longest)
	})
	return &Queue[K]{name: name, queue: ranked, ranked: ranked, priority: priority}
}

// Add puts a key into the queue.
func (q *Queue[K]) Add(key K) { q.add(key, priorityqueue.AddOpts{}) }

// AddAfter puts a key into the queue after a while.
func (q *Queue[K]) AddAfter(key K, after time.Duration) {
	q.add(key, priorityqueue.AddOpts{After: after})
}

// AddNow puts a key into the queue and forgets that it failed.
func (q *Queue[K]) AddNow(key K) {
	q.queue.Forget(key)
	q.Add(key)
}

// addRateLimited puts a key that failed into the queue again.
func (q *Queue[K]) addRateLimited(key K) { q.add(key, priorityqueue.AddOpts{RateLimited: true}) }

func (q *Queue[K]) add(key K, options priorityqueue.AddOpts) {
	switch {
	case q.ranked != nil:
		options.Priority = ptr.To(q.priority(key))
		q.ranked.AddWithOpts(options, key)
	case options.RateLimited:
		q.queue.AddRateLimited(key)
	case options.After > 0:
		q.queue.AddAfter(key, options.After)
	default:
		q.queue.Add(key)
	}
}

// Len returns how many keys wait.
func (q *Queue[K]) Len() int { return q.queue.Len() }

// Later is an error that asks for another try after a while, without anything being wrong: what is waited for will most
// likely wake the key up before.
type Later struct{ After time.Duration } //nolint:errname // it reads as what it asks for

// Error returns what is asked for.
func (l Later) Error() string { return fmt.Sprintf("again in %s", l.After) }

// Run works on keys until the context ends.
func (q *Queue[K]) Run(ctx context.Context, workers int, reconcile func(context.Context, K) error) {
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for q.next(ctx, reconcile) {
			}
		})
	}
	<-ctx.Done()
	q.queue.ShutDown()
	wait.Wait()
}

func (q *Queue[K]) next(ctx context.Context, reconcile func(context.Context, K) error) bool {
	key, shutdown := q.queue.Get()
	if shutdown {
		return false
	}
	defer q.queue.Done(key)
	err := guarded(ctx, key, reconcile)
	switch later := (Later{}); {
	case err == nil:
		q.queue.Forget(key)
	case errors.As(err, &later):
		q.queue.Forget(key)
		q.AddAfter(key, later.After)
	case ctx.Err() != nil:
	default:
		if !apierrors.IsConflict(err) { // somebody was faster; the picture will catch up
			klog.FromContext(ctx).V(1).Info("trying again", "queue", q.name, "key", key, "err", err)
		}
		q.addRateLimited(key)
	}
	return true
}

// guarded turns a panic into an error: what one object does to us must not harm the others.
func guarded[K comparable](ctx context.Context, key K, reconcile func(context.Context, K) error) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
			klog.FromContext(ctx).Error(err, "recovered", "key", key, "stack", string(debug.Stack()))
		}
	}()
	return reconcile(ctx, key)
}
