// Package queue runs reconcilers. Each key is reconciled by one worker at a time; failures are retried with back-off.
package queue

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// Transient reports whether an error resolves by itself in a moment, so that users need not see it.
func Transient(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.As(err, &Later{})
}

// Queue holds keys until they are reconciled. A standby replica collects keys too: it reconciles them when it becomes
// the leader.
type Queue[K comparable] struct {
	name  string
	queue workqueue.TypedRateLimitingInterface[K]
	// prioritized is the same queue if keys have priorities.
	prioritized priorityqueue.PriorityQueue[K]
	priority    func(K) int
}

// The back-off after a failure doubles from the first to the longest.
const (
	firstBackoff   = 20 * time.Millisecond
	longestBackoff = 30 * time.Second
)

// New returns an empty queue. The name is a label of its metrics.
func New[K comparable](name string) *Queue[K] {
	return NewWithBackoff[K](name, firstBackoff, longestBackoff)
}

// NewWithBackoff returns an empty queue with its own back-off.
func NewWithBackoff[K comparable](name string, first, longest time.Duration) *Queue[K] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](first, longest)
	config := workqueue.TypedRateLimitingQueueConfig[K]{Name: name, MetricsProvider: provider{}}
	return &Queue[K]{name: name, queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, config)}
}

// NewWithPriority returns an empty queue that hands out keys of a higher priority first. Keys of the same priority are
// first in, first out.
func NewWithPriority[K comparable](name string, first, longest time.Duration, priority func(K) int) *Queue[K] {
	prioritized := priorityqueue.New(name, func(o *priorityqueue.Opts[K]) {
		o.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[K](first, longest)
		o.MetricProvider = provider{}
	})
	return &Queue[K]{name: name, queue: prioritized, prioritized: prioritized, priority: priority}
}

// Add adds a key.
func (q *Queue[K]) Add(key K) { q.add(key, priorityqueue.AddOpts{}) }

// AddAfter adds a key after a delay.
func (q *Queue[K]) AddAfter(key K, after time.Duration) {
	q.add(key, priorityqueue.AddOpts{After: after})
}

// AddNow adds a key and resets its back-off.
func (q *Queue[K]) AddNow(key K) {
	q.queue.Forget(key)
	q.Add(key)
}

func (q *Queue[K]) addRateLimited(key K) { q.add(key, priorityqueue.AddOpts{RateLimited: true}) }

func (q *Queue[K]) add(key K, options priorityqueue.AddOpts) {
	switch {
	case q.prioritized != nil:
		options.Priority = ptr.To(q.priority(key))
		q.prioritized.AddWithOpts(options, key)
	case options.RateLimited:
		q.queue.AddRateLimited(key)
	case options.After > 0:
		q.queue.AddAfter(key, options.After)
	default:
		q.queue.Add(key)
	}
}

// Len returns the number of keys in the queue.
func (q *Queue[K]) Len() int { return q.queue.Len() }

// Later is returned by reconcilers to be called again after a delay. It is not a failure. An event usually adds the key
// before the delay ends.
type Later struct{ After time.Duration } //nolint:errname // it reads as what it asks for

// Error describes the delay.
func (l Later) Error() string { return fmt.Sprintf("retry in %s", l.After) }

// Run reconciles keys until the context ends.
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
	err := q.guarded(ctx, key, reconcile)
	switch later := (Later{}); {
	case err == nil:
		q.queue.Forget(key)
	case errors.As(err, &later):
		q.queue.Forget(key)
		q.AddAfter(key, later.After)
	case ctx.Err() != nil:
	default:
		q.logFailure(ctx, key, err)
		retries.WithLabelValues(q.name).Inc()
		q.addRateLimited(key)
	}
	return true
}

// logFailure logs the first failure of a key, then its retries 1, 2, 4, 8 and so on, so that a key that fails for a day
// takes a handful of lines. Write conflicts resolve by themselves when the cache catches up.
func (q *Queue[K]) logFailure(ctx context.Context, key K, err error) {
	logger := klog.FromContext(ctx)
	failures := q.queue.NumRequeues(key)
	if apierrors.IsConflict(err) || bits.OnesCount(uint(failures)) > 1 {
		logger = logger.V(4)
	}
	logger.Info("reconcile failed, retrying with back-off", "queue", q.name, "key", key, "retries", failures, "err", err)
}

// guarded turns a panic into an error, so that one object cannot stop the reconciliation of the others.
func (q *Queue[K]) guarded(ctx context.Context, key K, reconcile func(context.Context, K) error) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
			klog.FromContext(ctx).Error(err, "recovered from a panic", "queue", q.name, "key", key, "stack", string(debug.Stack()))
		}
	}()
	return reconcile(ctx, key)
}
