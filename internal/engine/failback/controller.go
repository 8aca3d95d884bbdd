// Package failback returns workloads to clusters they were evicted from, if their policy has the annotation
// cellplane.io/fail-back. When such a cluster has been healthy for the duration in the annotation, the workload is
// rescheduled, as a WorkloadRebalancer would do.
package failback

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/eviction"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
)

// Controller reschedules workloads when the clusters they were evicted from are healthy again.
type Controller struct {
	cell      *cell.Cell
	scheduler *scheduler.Scheduler
	recorder  *events.Recorder
	queue     *queue.Queue[cell.Key]
	now       func() time.Time

	mu      sync.Mutex
	healthy map[string]time.Time             // when each healthy cluster became healthy
	left    map[string]map[cell.Key]struct{} // bindings by the clusters they may fail back to
}

// New returns a controller that watches a cell.
func New(c *cell.Cell, s *scheduler.Scheduler, recorder *events.Recorder) *Controller {
	f := &Controller{
		cell: c, scheduler: s, recorder: recorder, queue: queue.New[cell.Key]("fail-back"), now: time.Now,
		healthy: map[string]time.Time{}, left: map[string]map[cell.Key]struct{}{},
	}
	c.Clusters.Subscribe(f.clusterChanged)
	c.SubscribeBindings(f.bindingChanged)
	return f
}

// clusterChanged tracks since when a cluster is healthy and queues the bindings that may fail back to it.
func (f *Controller) clusterChanged(key cell.Key, _, now *clusterv1alpha1.Cluster) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, was := f.healthy[key.Name]
	switch is := now != nil && isHealthy(now); {
	case is && !was:
		f.healthy[key.Name] = f.now()
		for binding := range f.left[key.Name] {
			f.queue.AddNow(binding)
		}
	case !is:
		delete(f.healthy, key.Name)
	}
}

// isHealthy reports whether a cluster accepts workloads.
func isHealthy(cluster *clusterv1alpha1.Cluster) bool {
	ready := meta.FindStatusCondition(cluster.Status.Conditions, names.ClusterReady)
	return cluster.DeletionTimestamp == nil && (ready == nil || ready.Status == metav1.ConditionTrue) &&
		!slices.ContainsFunc(cluster.Spec.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
}

func (f *Controller) bindingChanged(key cell.Key, old, now *workv1alpha2.ResourceBinding) {
	if old != nil && now != nil && maps.Equal(old.Annotations, now.Annotations) && old.Generation == now.Generation {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if old != nil {
		for _, cluster := range eviction.Left(old) {
			delete(f.left[cluster], key)
		}
	}
	if now == nil {
		return
	}
	for _, cluster := range eviction.Left(now) {
		if f.left[cluster] == nil {
			f.left[cluster] = map[cell.Key]struct{}{}
		}
		f.left[cluster][key] = struct{}{}
		f.queue.AddNow(key)
	}
}

// Run reconciles bindings until the context ends.
func (f *Controller) Run(ctx context.Context, workers int) { f.queue.Run(ctx, workers, f.Reconcile) }

// Reconcile reschedules a workload if a cluster that it was evicted from has been healthy for long enough.
func (f *Controller) Reconcile(ctx context.Context, key cell.Key) error {
	binding := f.cell.Binding(key)
	if binding == nil || binding.DeletionTimestamp != nil || binding.Labels[names.RebalanceStatusLabel] != "" || !f.scheduler.Responsible(binding) {
		return nil
	}
	left := eviction.Left(binding)
	if len(left) == 0 {
		return nil
	}
	healthyFor, err := time.ParseDuration(binding.Annotations[names.FailBackAnnotation])
	if err != nil {
		f.recorder.Failed(events.OfBinding(binding), "fail-back", names.EventScheduleBindingFailed,
			"the annotation "+names.FailBackAnnotation+" is not a duration like 10m; correct it in the policy")
		return nil
	}

	// 1. Find the clusters that have been healthy for long enough.
	back, next := f.back(binding, left, healthyFor)
	if len(back) == 0 {
		if next > 0 {
			return queue.Later{After: next}
		}
		return nil // an event of a cluster or of the binding triggers the next check
	}

	// 2. Reschedule.
	after := binding.DeepCopy()
	after.Spec.RescheduleTriggeredAt = &metav1.Time{Time: f.now().Truncate(time.Second)}
	if last := binding.Status.LastScheduledTime; last != nil && !after.Spec.RescheduleTriggeredAt.After(last.Time) {
		return queue.Later{After: time.Second} // timestamps have a resolution of one second
	}
	remaining := slices.DeleteFunc(slices.Clone(left), func(cluster string) bool { return slices.Contains(back, cluster) })
	if len(remaining) == 0 {
		delete(after.Annotations, names.EvictedFromAnnotation)
	} else {
		after.Annotations[names.EvictedFromAnnotation] = strings.Join(remaining, ",")
	}
	written, err := f.scheduler.Place(ctx, scheduler.Change{Before: binding, After: after})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	f.recorder.Succeeded(events.OfBinding(written), "fail-back", names.EventScheduleBindingSucceed,
		strings.Join(back, ", ")+" is healthy again; now in "+scheduler.Describe(written.Spec.Clusters), true)
	return nil
}

// back returns the clusters that have been healthy for long enough and have no eviction task left, and the time
// until the next one will be.
func (f *Controller) back(binding *workv1alpha2.ResourceBinding, left []string, healthyFor time.Duration) (back []string, next time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cluster := range left {
		since, healthy := f.healthy[cluster]
		evicting := slices.ContainsFunc(binding.Spec.GracefulEvictionTasks, func(t workv1alpha2.GracefulEvictionTask) bool { return t.FromCluster == cluster })
		if !healthy || evicting {
			continue
		}
		if wait := since.Add(healthyFor).Sub(f.now()); wait <= 0 {
			back = append(back, cluster)
		} else if next == 0 || wait < next {
			next = wait
		}
	}
	return back, next
}
