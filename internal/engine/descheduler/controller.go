// Package descheduler moves replicas whose pods are unschedulable in their cluster to clusters with free capacity.
// It checks periodically. If no cluster has capacity, the pods stay pending for a node autoscaler.
package descheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
)

// Options configure the controller.
type Options struct {
	// Interval is the time between checks; 0 means two minutes.
	Interval time.Duration
	// Age is how long a pod must have been unschedulable; 0 means five minutes.
	Age time.Duration
	// Pending counts the pods of a workload that have been unschedulable in a cluster for at least the given time.
	// Nil queries the member.
	Pending func(ctx context.Context, cluster string, binding *workv1alpha2.ResourceBinding, age time.Duration) (int32, error)
}

// Complete sets defaults. The parameter ask is the default for Pending.
func (o Options) Complete(ask func(ctx context.Context, cluster string, binding *workv1alpha2.ResourceBinding, age time.Duration) (int32, error)) Options {
	if o.Interval <= 0 {
		o.Interval = 2 * time.Minute
	}
	if o.Age <= 0 {
		o.Age = 5 * time.Minute
	}
	if o.Pending == nil {
		o.Pending = ask
	}
	return o
}

// Controller moves replicas of pending pods.
type Controller struct {
	cell      *cell.Cell
	scheduler *scheduler.Scheduler
	recorder  *events.Recorder
	options   Options
	queue     *queue.Queue[cell.Key]
}

// New returns a controller for a cell. The options must be complete.
func New(c *cell.Cell, s *scheduler.Scheduler, recorder *events.Recorder, options Options) *Controller {
	return &Controller{cell: c, scheduler: s, recorder: recorder, options: options, queue: queue.New[cell.Key]("descheduler")}
}

// Run checks all workloads once per interval until the context ends.
func (d *Controller) Run(ctx context.Context, workers int) {
	go func() {
		ticker := time.NewTicker(d.options.Interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			for _, key := range d.cell.BindingKeys() {
				if binding := d.cell.Binding(key); binding != nil && len(short(binding)) > 0 {
					d.queue.Add(key)
				}
			}
		}
	}()
	d.queue.Run(ctx, workers, d.Reconcile)
}

// Reconcile moves the replicas of a workload whose pods are unschedulable.
func (d *Controller) Reconcile(ctx context.Context, key cell.Key) error {
	binding := d.cell.Binding(key)
	if binding == nil || binding.DeletionTimestamp != nil || binding.Labels[names.RebalanceStatusLabel] != "" || !d.scheduler.Responsible(binding) {
		return nil
	}

	// 1. Find the clusters with unschedulable pods.
	pending := map[string]int32{}
	for cluster, missing := range short(binding) {
		count, err := d.options.Pending(ctx, cluster, binding, d.options.Age)
		if err != nil {
			klog.FromContext(ctx).V(1).Info("cannot count pending pods", "cluster", cluster, "binding", key, "err", err)
			continue // an unreachable member does not mean that it lacks capacity
		}
		if count = min(count, missing); count > 0 {
			pending[cluster] = count
		}
	}
	if len(pending) == 0 {
		return nil
	}

	// 2. Schedule their replicas to other clusters.
	after, full := lower(binding, pending)
	written, err := d.scheduler.Place(ctx, scheduler.Change{Before: binding, After: after, Full: full})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		if !apierrors.IsConflict(err) {
			d.recorder.Failed(events.OfBinding(binding), "deschedule", names.EventDescheduleBindingFailed, err.Error())
		}
		return err
	}
	if written == binding {
		return nil // no cluster has capacity
	}
	for _, count := range pending {
		moved.Add(float64(count))
	}
	d.recorder.Succeeded(events.OfBinding(written), "deschedule", names.EventDescheduleBindingSucceed,
		fmt.Sprintf("pods were unschedulable in %v; now in %s", full, scheduler.Describe(written.Spec.Clusters)), true)
	return nil
}

// short returns, for a workload that is placed by capacity, the clusters with fewer ready replicas than placed, and
// the difference.
func short(binding *workv1alpha2.ResourceBinding) map[string]int32 {
	if binding.Spec.Replicas <= 0 || len(binding.Spec.Components) > 0 || !scheduler.ByCapacity(&binding.Spec) {
		return nil
	}
	missing := map[string]int32{}
	for i := range binding.Spec.Clusters {
		target := &binding.Spec.Clusters[i]
		at := slices.IndexFunc(binding.Status.AggregatedStatus, func(item workv1alpha2.AggregatedStatusItem) bool { return item.ClusterName == target.Name })
		if at < 0 || binding.Status.AggregatedStatus[at].Status == nil {
			continue
		}
		var status struct {
			ReadyReplicas int32 `json:"readyReplicas"`
		}
		if json.Unmarshal(binding.Status.AggregatedStatus[at].Status.Raw, &status) == nil && status.ReadyReplicas < target.Replicas {
			missing[target.Name] = target.Replicas - status.ReadyReplicas
		}
	}
	return missing
}

// lower removes pending replicas from a binding and returns the clusters without capacity for them.
func lower(binding *workv1alpha2.ResourceBinding, pending map[string]int32) (after *workv1alpha2.ResourceBinding, full []string) {
	after = binding.DeepCopy()
	kept := after.Spec.Clusters[:0]
	for _, target := range after.Spec.Clusters {
		if count := pending[target.Name]; count > 0 {
			full = append(full, target.Name)
			if target.Replicas -= count; target.Replicas <= 0 {
				continue
			}
		}
		kept = append(kept, target)
	}
	after.Spec.Clusters = kept
	return after, full
}
