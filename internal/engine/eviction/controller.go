package eviction

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/queue"
)

// Controller ends eviction tasks whose old copy is no longer needed.
type Controller struct {
	cell     *cell.Cell
	recorder *events.Recorder
	grace    time.Duration
	now      func() time.Time
	queue    *queue.Queue[cell.Key]
}

// New returns a controller that watches a cell. A grace period of 0 means DefaultGracePeriod.
func New(c *cell.Cell, recorder *events.Recorder, grace time.Duration) *Controller {
	if grace <= 0 {
		grace = DefaultGracePeriod
	}
	e := &Controller{cell: c, recorder: recorder, grace: grace, now: time.Now, queue: queue.New[cell.Key]("eviction")}
	c.SubscribeBindings(func(key cell.Key, _, now *workv1alpha2.ResourceBinding) {
		if now != nil && len(now.Spec.GracefulEvictionTasks) > 0 {
			e.queue.AddNow(key)
		}
	})
	return e
}

// Run reconciles bindings until the context ends.
func (e *Controller) Run(ctx context.Context, workers int) { e.queue.Run(ctx, workers, e.Reconcile) }

// Reconcile removes the finished tasks of a binding. The old copies are deleted with them.
func (e *Controller) Reconcile(ctx context.Context, key cell.Key) error {
	binding := e.cell.Binding(key)
	if binding == nil || binding.DeletionTimestamp != nil || binding.Labels[names.RebalanceStatusLabel] != "" {
		return nil
	}
	before := binding.Spec.GracefulEvictionTasks
	tasks, next := assess(binding, e.now(), e.grace)
	if len(tasks) < len(before) {
		binding = binding.DeepCopy()
		binding.Spec.GracefulEvictionTasks = tasks
		if _, err := e.cell.UpdateBinding(ctx, binding); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
		ended.Add(float64(len(before) - len(tasks)))
		message := fmt.Sprintf("removing %d of %d old copies", len(before)-len(tasks), len(before))
		e.recorder.Succeeded(events.OfBinding(binding), "eviction", names.EventEvictWorkloadFromClusterSucceed, message, true)
		e.recorder.Also(events.OfTemplate(e.cell.TemplateOf(binding)), "eviction", names.EventEvictWorkloadFromClusterSucceed, message, true)
	}
	if next > 0 {
		return queue.Later{After: next}
	}
	return nil
}
