// Package appfailover moves workloads that stay unhealthy in a cluster to another one, if their policy configures
// application failover. The start of the unhealthy period is kept in memory: after a restart or a change of leader
// it starts over.
package appfailover

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/eviction"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
)

// Defaults for unset policy fields.
const (
	defaultTolerationSeconds = 300
	defaultGraceSeconds      = 600
)

// Controller evicts unhealthy workloads.
type Controller struct {
	cell      *cell.Cell
	scheduler *scheduler.Scheduler
	recorder  *events.Recorder
	queue     *queue.Queue[cell.Key]
	now       func() time.Time

	mu        sync.Mutex
	unhealthy map[cell.Key]map[string]time.Time // start of the unhealthy period, by binding and cluster
}

// New returns a controller that watches a cell.
func New(c *cell.Cell, s *scheduler.Scheduler, recorder *events.Recorder) *Controller {
	a := &Controller{
		cell: c, scheduler: s, recorder: recorder, queue: queue.New[cell.Key]("application-failover"), now: time.Now,
		unhealthy: map[cell.Key]map[string]time.Time{},
	}
	c.SubscribeBindings(func(key cell.Key, old, now *workv1alpha2.ResourceBinding) {
		if wanted(old) || wanted(now) {
			a.queue.AddNow(key)
		}
	})
	return a
}

func wanted(binding *workv1alpha2.ResourceBinding) bool {
	return binding != nil && binding.Spec.Failover != nil && binding.Spec.Failover.Application != nil
}

// Run reconciles bindings until the context ends.
func (a *Controller) Run(ctx context.Context, workers int) { a.queue.Run(ctx, workers, a.Reconcile) }

// Reconcile moves a workload out of the clusters in which it has been unhealthy for too long.
func (a *Controller) Reconcile(ctx context.Context, key cell.Key) error {
	binding := a.cell.Binding(key)
	if binding == nil || binding.DeletionTimestamp != nil || !wanted(binding) {
		a.forget(key)
		return nil
	}
	if binding.Labels[names.RebalanceStatusLabel] != "" || !a.scheduler.Responsible(binding) {
		return nil
	}
	about := events.OfBinding(binding)
	if !binding.Spec.PropagateDeps {
		a.recorder.Failed(about, "application-failover", names.EventEvictWorkloadFromClusterFailed,
			"failover.application has no effect without propagateDeps: the dependencies of the workload would not move with it; set propagateDeps in the policy")
		return nil
	}

	// 1. Find the clusters in which it has been unhealthy for too long.
	behaviour := binding.Spec.Failover.Application
	leaving, next := a.overdue(key, binding, behaviour)
	if len(leaving) == 0 {
		if next > 0 {
			return queue.Later{After: next}
		}
		return nil
	}

	// 2. Evict it from them and schedule it again.
	after := binding.DeepCopy()
	for _, cluster := range leaving {
		eviction.Evict(after, evictionOf(binding, behaviour, cluster), a.now())
	}
	written, err := a.scheduler.Place(ctx, scheduler.Change{Before: binding, After: after})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		if !apierrors.IsConflict(err) {
			a.recorder.Failed(about, "application-failover", names.EventEvictWorkloadFromClusterFailed, err.Error())
		}
		return err
	}
	failovers.Add(float64(len(leaving)))
	for _, cluster := range leaving {
		a.recorder.Succeeded(about, "application-failover", names.EventEvictWorkloadFromClusterSucceed,
			fmt.Sprintf("evicted from %s, where it was unhealthy for too long; now in %s", cluster, scheduler.Describe(written.Spec.Clusters)), true)
	}
	if next > 0 {
		return queue.Later{After: next}
	}
	return nil
}

// overdue returns the clusters in which a workload was unhealthy for longer than tolerated, and the time until the
// next one is.
func (a *Controller) overdue(key cell.Key, binding *workv1alpha2.ResourceBinding, behaviour *policyv1alpha1.ApplicationFailoverBehavior) (clusters []string, next time.Duration) {
	tolerated := time.Duration(ptr.Deref(behaviour.DecisionConditions.TolerationSeconds, defaultTolerationSeconds)) * time.Second
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.unhealthy[key]
	since := map[string]time.Time{}
	for i := range binding.Status.AggregatedStatus {
		item := &binding.Status.AggregatedStatus[i]
		placed := slices.ContainsFunc(binding.Spec.Clusters, func(t workv1alpha2.TargetCluster) bool { return t.Name == item.ClusterName })
		if !placed || item.Health != workv1alpha2.ResourceUnhealthy {
			continue
		}
		began, known := before[item.ClusterName]
		if !known {
			began = now
		}
		since[item.ClusterName] = began
		if left := began.Add(tolerated).Sub(now); left <= 0 {
			clusters = append(clusters, item.ClusterName)
		} else if next == 0 || left < next {
			next = left
		}
	}
	if len(since) == 0 {
		delete(a.unhealthy, key)
	} else {
		a.unhealthy[key] = since
	}
	return clusters, next
}

func (a *Controller) forget(key cell.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.unhealthy, key)
}

func evictionOf(binding *workv1alpha2.ResourceBinding, behaviour *policyv1alpha1.ApplicationFailoverBehavior, cluster string) eviction.Eviction {
	e := eviction.Eviction{
		Cluster: cluster, PurgeMode: behaviour.PurgeMode, Preserve: behaviour.StatePreservation,
		Reason: names.EvictionReasonApplicationFailure, Producer: names.EvictionProducerResourceBindingFailover,
		Message: fmt.Sprintf("The workload was unhealthy in cluster %s for too long.", cluster),
	}
	if binding.Namespace == "" {
		e.Producer = names.EvictionProducerClusterResourceBindingFailover
	}
	if e.PurgeMode == "" || e.PurgeMode == policyv1alpha1.PurgeModeGracefully {
		e.GracePeriodSeconds = ptr.To(ptr.Deref(behaviour.GracePeriodSeconds, defaultGraceSeconds))
	}
	return e
}
