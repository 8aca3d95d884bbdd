package scheduler

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/queue"
)

// Back-off between attempts whose write failed.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// retryPeriod is the interval at which an unschedulable binding is retried when no event triggers it.
const retryPeriod = 5 * time.Minute

// Run schedules bindings until the context ends.
func (s *Scheduler) Run(ctx context.Context, workers int) { s.queue.Run(ctx, workers, s.Reconcile) }

// Enqueue queues a binding for a scheduling attempt.
func (s *Scheduler) Enqueue(key cell.Key) { s.queue.AddNow(key) }

// enqueueAll queues bindings for the same event, highest priority first: idle workers take keys as they are added.
func (s *Scheduler) enqueueAll(event string, keys []cell.Key) {
	incoming.WithLabelValues(event).Add(float64(len(keys)))
	priorities := make(map[cell.Key]int, len(keys))
	for _, key := range keys {
		priorities[key] = s.priority(key)
	}
	slices.SortStableFunc(keys, func(a, b cell.Key) int { return -cmp.Compare(priorities[a], priorities[b]) })
	for _, key := range keys {
		s.queue.AddNow(key)
	}
}

// Reconcile schedules a binding if a decision is due.
func (s *Scheduler) Reconcile(ctx context.Context, key cell.Key) error {
	binding := s.cell.Binding(key)
	if binding == nil || binding.DeletionTimestamp != nil || binding.Labels[names.RebalanceStatusLabel] != "" || !s.Responsible(binding) && !Held(binding) {
		return nil
	}
	_, err := s.Place(ctx, Change{Before: binding, After: binding.DeepCopy()})
	if errors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		incoming.WithLabelValues(scheduleAttemptFailure).Inc()
		return err
	}
	switch outcome, _ := s.Last(key); {
	case outcome.retryAfter > 0:
		return queue.Later{After: outcome.retryAfter}
	case outcome.Failure != nil:
		incoming.WithLabelValues(scheduleAttemptFailure).Inc()
		return queue.Later{After: retryPeriod}
	default:
		return nil
	}
}

// priority returns the scheduling priority of a binding. Higher priorities are scheduled first.
func (s *Scheduler) priority(key cell.Key) int {
	if binding := s.cell.Binding(key); binding != nil && binding.Spec.SchedulePriority != nil {
		return int(binding.Spec.SchedulePriority.Priority)
	}
	return 0
}
