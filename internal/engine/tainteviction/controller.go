// Package tainteviction moves workloads out of clusters with NoExecute taints that they do not tolerate, or no
// longer tolerate. The rate depends on how many clusters fail: the loss of one cluster is a reason to move, the
// loss of most clusters suggests a fault between them and the control plane.
package tainteviction

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/eviction"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
)

// Options configure the controller. The zero value is valid.
type Options struct {
	// PurgeMode is used where the policy sets none; empty means Gracefully.
	PurgeMode policyv1alpha1.PurgeMode
	// Rates limit evictions.
	Rates Rates
}

// Controller evicts workloads from tainted clusters.
type Controller struct {
	cell      *cell.Cell
	scheduler *scheduler.Scheduler
	recorder  *events.Recorder
	options   Options
	pace      *pace
	queue     *queue.Queue[cell.Key]
	now       func() time.Time

	mu       sync.Mutex
	seen     map[string]time.Time // when each taint was first seen
	reserved map[cell.Key]slot
	waiting  map[cell.Key]struct{} // workloads to be evicted now, or when their turn comes
}

// New returns a controller that watches a cell.
func New(c *cell.Cell, s *scheduler.Scheduler, recorder *events.Recorder, options Options) *Controller {
	t := &Controller{
		cell: c, scheduler: s, recorder: recorder, options: options, pace: newPace(options.Rates),
		queue: queue.New[cell.Key]("taint-eviction"), now: time.Now, seen: map[string]time.Time{}, reserved: map[cell.Key]slot{}, waiting: map[cell.Key]struct{}{},
	}
	c.Clusters.Subscribe(t.clusterChanged)
	c.SubscribeBindings(func(key cell.Key, old, now *workv1alpha2.ResourceBinding) {
		if now == nil {
			t.forget(key)
		}
		if now != nil && (old == nil || old.Generation != now.Generation) && t.concerned(now) {
			t.queue.AddNow(key)
		}
	})
	return t
}

// Run reconciles bindings until the context ends.
func (t *Controller) Run(ctx context.Context, workers int) { t.queue.Run(ctx, workers, t.Reconcile) }

// clusterChanged adjusts the rates and queues the workloads of a cluster whose taints changed.
func (t *Controller) clusterChanged(key cell.Key, old, now *clusterv1alpha1.Cluster) {
	if old == nil || now == nil || isFailing(old) != isFailing(now) || old.Spec.Region != now.Spec.Region {
		t.pace.adapt(t.cell.Clusters.All())
	}
	taints := noExecuteTaints(now)
	t.note(key.Name, taints)
	if len(taints) == 0 || slices.EqualFunc(noExecuteTaints(old), taints, sameTaint) {
		return
	}
	for _, binding := range t.cell.BindingsIn(key.Name) {
		t.queue.AddNow(binding)
	}
}

// noExecuteTaints returns the NoExecute taints of a cluster.
func noExecuteTaints(cluster *clusterv1alpha1.Cluster) []corev1.Taint {
	if cluster == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(cluster.Spec.Taints), func(taint corev1.Taint) bool { return taint.Effect != corev1.TaintEffectNoExecute })
}

func sameTaint(a, b corev1.Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.TimeAdded.Equal(b.TimeAdded)
}

// concerned reports whether a binding is in a cluster with NoExecute taints.
func (t *Controller) concerned(binding *workv1alpha2.ResourceBinding) bool {
	return slices.ContainsFunc(binding.Spec.Clusters, func(target workv1alpha2.TargetCluster) bool {
		return len(noExecuteTaints(t.cell.Clusters.Get(cell.Key{Name: target.Name}))) > 0
	})
}

// Reconcile moves a workload out of clusters whose taints it no longer tolerates. The eviction and the new clusters
// are written at once.
func (t *Controller) Reconcile(ctx context.Context, key cell.Key) error {
	binding := t.cell.Binding(key)
	if binding == nil || binding.DeletionTimestamp != nil || binding.Labels[names.RebalanceStatusLabel] != "" || binding.Spec.Placement == nil {
		return nil // attached bindings move with their dependents
	}
	start := t.now()

	// 1. Find the clusters to leave.
	leaving, next := t.leaving(binding)
	if len(leaving) == 0 {
		t.forget(key)
		return later(next)
	}

	// 2. Wait for the rate limit.
	t.awaited(key)
	if wait := t.turn(key, leaving); wait > 0 {
		heldBack.Inc()
		return queue.Later{After: wait}
	}

	// 3. Evict the workload and schedule it again.
	after := binding.DeepCopy()
	for _, e := range leaving {
		eviction.Evict(after, t.evictionOf(binding, e), t.now())
	}
	written, err := t.scheduler.Place(ctx, scheduler.Change{Before: binding, After: after})
	if apierrors.IsNotFound(err) {
		t.forget(key)
		return nil
	}
	if !apierrors.IsConflict(err) {
		record(key, err, t.now().Sub(start))
	}
	if err != nil {
		if !apierrors.IsConflict(err) {
			t.recorder.Failed(events.OfBinding(binding), "eviction", names.EventEvictWorkloadFromClusterFailed, err.Error())
		}
		return err
	}
	t.forget(key)
	for _, e := range leaving {
		t.recorder.Succeeded(events.OfBinding(written), "eviction", names.EventEvictWorkloadFromClusterSucceed,
			fmt.Sprintf("evicted from %s, which has the taint %s; now in %s", e.cluster.Name, e.taint.ToString(), scheduler.Describe(written.Spec.Clusters)), true)
	}
	return later(next)
}

// awaited notes that the eviction of a workload is due.
func (t *Controller) awaited(key cell.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[key] = struct{}{}
}

// turn returns how long the rate limit delays the eviction of a workload.
func (t *Controller) turn(key cell.Key, leaving []departure) time.Duration {
	t.mu.Lock()
	reserved := t.reserved[key]
	t.mu.Unlock()
	now := t.now()
	var last slot
	for _, e := range leaving {
		s, ok := t.pace.reserve(e.cluster, reserved, now)
		if !ok {
			return stoppedRetry
		}
		if s.at.After(last.at) {
			last = s
		}
	}
	wait := last.at.Sub(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	if wait > 0 {
		t.reserved[key] = last
	} else {
		delete(t.reserved, key)
	}
	return wait
}

func later(after time.Duration) error {
	if after == forever {
		return nil
	}
	return queue.Later{After: max(after, time.Millisecond)}
}

// forget drops the reserved eviction time of a workload that need not be evicted, or has been.
func (t *Controller) forget(key cell.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.reserved, key)
	delete(t.waiting, key)
}

// departure is a cluster to leave and the taint that causes it.
type departure struct {
	cluster *clusterv1alpha1.Cluster
	taint   *corev1.Taint
}

// leaving returns the clusters to leave now, and the time until the next one.
func (t *Controller) leaving(binding *workv1alpha2.ResourceBinding) (now []departure, next time.Duration) {
	next = forever
	for i := range binding.Spec.Clusters {
		cluster := t.cell.Clusters.Get(cell.Key{Name: binding.Spec.Clusters[i].Name})
		if cluster == nil {
			continue
		}
		taint, left := leave(cluster, binding.Spec.Placement.ClusterTolerations, func(taint *corev1.Taint) time.Time { return t.firstSeen(cluster.Name, taint) }, t.now())
		switch {
		case taint == nil:
		case left <= 0:
			now = append(now, departure{cluster, taint})
		default:
			next = min(next, left)
		}
	}
	return now, next
}

func (t *Controller) evictionOf(binding *workv1alpha2.ResourceBinding, d departure) eviction.Eviction {
	e := eviction.Eviction{
		Cluster: d.cluster.Name, PurgeMode: t.options.PurgeMode,
		Reason: names.EvictionReasonTaintUntolerated, Producer: names.EvictionProducerTaintManager,
		Message: fmt.Sprintf("The taint %s of cluster %s is not tolerated.", d.taint.ToString(), d.cluster.Name),
	}
	if failover := binding.Spec.Failover; failover != nil && failover.Cluster != nil {
		if failover.Cluster.PurgeMode != "" {
			e.PurgeMode = failover.Cluster.PurgeMode
		}
		e.Preserve = failover.Cluster.StatePreservation
	}
	return e
}

// note records when taints were first seen and drops those that were removed.
func (t *Controller) note(cluster string, taints []corev1.Taint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := map[string]bool{}
	for i := range taints {
		id := taintID(cluster, &taints[i])
		known[id] = true
		if _, there := t.seen[id]; !there {
			t.seen[id] = t.now()
		}
	}
	for id := range t.seen {
		if belongs(id, cluster) && !known[id] {
			delete(t.seen, id)
		}
	}
}

func (t *Controller) firstSeen(cluster string, taint *corev1.Taint) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, known := t.seen[taintID(cluster, taint)]; known {
		return at
	}
	return t.now()
}

func taintID(cluster string, taint *corev1.Taint) string {
	return cluster + "/" + taint.Key + "=" + taint.Value
}

func belongs(id, cluster string) bool {
	return len(id) > len(cluster) && id[:len(cluster)] == cluster && id[len(cluster)] == '/'
}
