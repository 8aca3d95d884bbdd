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

// The pause after an attempt that could not be written doubles from the first to the longest.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = 10 * time.Second
)

// retryPeriod is after how long a binding without a place is looked at again though nothing around it has changed.
const retryPeriod = 5 * time.Minute

// Run decides about bindings whose surroundings change until the context ends.
func (s *Scheduler) Run(ctx context.Context, workers int) { s.queue.Run(ctx, workers, s.Reconcile) }

// Enqueue has a binding looked at.
func (s *Scheduler) Enqueue(key cell.Key) { s.queue.AddNow(key) }

// enqueueAll has bindings looked at because of the same event. Those with a higher priority come first: workers that have
// nothing else to do take what comes.
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

// Reconcile decides about a binding if a decision is due.
func (s *Scheduler) Reconcile(ctx context.Context, key cell.Key) error {
	binding := s.cell.Binding(key)
	if binding == nil || binding.DeletionTimestamp != nil || binding.Labels[names.RebalanceStatusLabel] != "" || !s.Responsible(binding) {
		return nil
	}
	_, err := s.Place(ctx, Change{Before: binding, After: binding.DeepCopy()})
	if errors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	switch outcome, _ := s.Last(key); {
	case outcome.again > 0:
		return queue.Later{After: outcome.again}
	case outcome.Failure != nil:
		return queue.Later{After: retryPeriod}
	default:
		return nil
	}
}

// priority of a binding: those with a higher one are decided about first.
func (s *Scheduler) priority(key cell.Key) int {
	if binding := s.cell.Binding(key); binding != nil && binding.Spec.SchedulePriority != nil {
		return int(binding.Spec.SchedulePriority.Priority)
	}
	return 0
}
