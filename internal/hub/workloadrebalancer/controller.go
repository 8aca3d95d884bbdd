// Package workloadrebalancer triggers the rescheduling of workloads that WorkloadRebalancers name. WorkloadRebalancers are on
// the hub; the bindings of the workloads are in the cells, whose engines reschedule them.
package workloadrebalancer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/cellplane/cellplane/api/apps/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// Options configure the controller.
type Options struct {
	// Cells returns clients for all cells; the error names those that cannot be connected to. Nil means that there are no
	// cells, and the hub has everything.
	Cells func(context.Context) (map[string]client.Client, error)
}

// Controller handles WorkloadRebalancers.
type Controller struct {
	client  client.Client
	direct  client.Reader // bindings are too many to be cached here
	options Options
	now     func() time.Time
}

// Add registers the controller with a manager.
func Add(mgr manager.Manager, options Options) error {
	c := &Controller{client: mgr.GetClient(), direct: mgr.GetAPIReader(), options: options, now: time.Now}
	return builder.ControllerManagedBy(mgr).
		Named("workload-rebalancer").
		For(&appsv1alpha1.WorkloadRebalancer{}).
		Complete(c)
}

// Reconcile handles the workloads of one WorkloadRebalancer, and deletes it when its TTL has expired.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	rebalancer := &appsv1alpha1.WorkloadRebalancer{}
	if err := c.client.Get(ctx, request.NamespacedName, rebalancer); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if rebalancer.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}

	// 1. Trigger the workloads that were not triggered yet.
	status, pending := c.handle(ctx, rebalancer)

	// 2. Write the results.
	if !equality.Semantic.DeepEqual(&rebalancer.Status, status) {
		rebalancer = rebalancer.DeepCopy()
		rebalancer.Status = *status
		if err := c.client.Status().Update(ctx, rebalancer); err != nil {
			return reconcile.Result{}, ignoreRaces(err)
		}
	}
	if pending != nil {
		return reconcile.Result{}, fmt.Errorf("rescheduling the workloads of WorkloadRebalancer %s: %w", rebalancer.Name, pending)
	}

	// 3. Delete it when the TTL has expired.
	ttl := rebalancer.Spec.TTLSecondsAfterFinished
	if ttl == nil || status.FinishTime == nil {
		return reconcile.Result{}, nil
	}
	if left := status.FinishTime.Add(time.Duration(*ttl) * time.Second).Sub(c.now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	err := c.client.Delete(ctx, rebalancer, client.Preconditions{UID: &rebalancer.UID, ResourceVersion: &rebalancer.ResourceVersion})
	return reconcile.Result{}, ignoreRaces(err)
}

// ignoreRaces ignores conflicts and deletions: the next event reconciles again.
func ignoreRaces(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// handle triggers every workload that was not triggered successfully before. The error is about workloads without a result,
// which are retried.
func (c *Controller) handle(ctx context.Context, rebalancer *appsv1alpha1.WorkloadRebalancer) (*appsv1alpha1.WorkloadRebalancerStatus, error) {
	status := &appsv1alpha1.WorkloadRebalancerStatus{ObservedGeneration: rebalancer.Generation, FinishTime: rebalancer.Status.FinishTime}
	var pending []error
	for _, observed := range observedOf(rebalancer) {
		if observed.Result != appsv1alpha1.RebalanceSuccessful && !(observed.Result == appsv1alpha1.RebalanceFailed && rebalancer.Status.ObservedGeneration == rebalancer.Generation) {
			var err error
			if observed, err = c.trigger(ctx, observed.Workload, rebalancer.CreationTimestamp); err != nil {
				pending = append(pending, err)
				status.FinishTime = nil
			}
		}
		status.ObservedWorkloads = append(status.ObservedWorkloads, observed)
	}
	if rebalancer.Status.ObservedGeneration != rebalancer.Generation {
		status.FinishTime = nil
	}
	if len(pending) == 0 && status.FinishTime == nil {
		status.FinishTime = &metav1.Time{Time: c.now().Truncate(time.Second)}
	}
	return status, errors.Join(pending...)
}

// observedOf returns the workloads of a rebalancer with their last results, in the order of their references. A workload that is no longer listed stays
// if it was triggered.
func observedOf(rebalancer *appsv1alpha1.WorkloadRebalancer) []appsv1alpha1.ObservedWorkload {
	var list []appsv1alpha1.ObservedWorkload
	listed := func(workload appsv1alpha1.ObjectReference) bool {
		return slices.ContainsFunc(list, func(o appsv1alpha1.ObservedWorkload) bool { return o.Workload == workload })
	}
	for _, observed := range rebalancer.Status.ObservedWorkloads {
		if !listed(observed.Workload) && (observed.Result == appsv1alpha1.RebalanceSuccessful || slices.Contains(rebalancer.Spec.Workloads, observed.Workload)) {
			list = append(list, observed)
		}
	}
	for _, workload := range rebalancer.Spec.Workloads {
		if !listed(workload) {
			list = append(list, appsv1alpha1.ObservedWorkload{Workload: workload})
		}
	}
	key := func(o *appsv1alpha1.ObservedWorkload) string {
		return strings.Join([]string{o.Workload.APIVersion, o.Workload.Kind, o.Workload.Namespace, o.Workload.Name}, " ")
	}
	slices.SortFunc(list, func(a, b appsv1alpha1.ObservedWorkload) int { return strings.Compare(key(&a), key(&b)) })
	return list
}

// trigger triggers the rescheduling of a workload.
func (c *Controller) trigger(ctx context.Context, workload appsv1alpha1.ObjectReference, at metav1.Time) (appsv1alpha1.ObservedWorkload, error) {
	observed := appsv1alpha1.ObservedWorkload{Workload: workload}
	holder, binding, err := c.find(ctx, workload)
	if err != nil {
		return observed, err
	}
	if binding == nil {
		observed.Result, observed.Reason = appsv1alpha1.RebalanceFailed, appsv1alpha1.ReasonReferencedBindingNotFound
		return observed, nil
	}
	spec := specOf(binding)
	if spec.RescheduleTriggeredAt == nil || at.After(spec.RescheduleTriggeredAt.Time) {
		before := binding.DeepCopyObject().(client.Object)
		spec.RescheduleTriggeredAt = &at
		if err := holder.Patch(ctx, binding, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return observed, fmt.Errorf("triggering %s %s/%s: %w", workload.Kind, workload.Namespace, workload.Name, err)
		}
	}
	observed.Result = appsv1alpha1.RebalanceSuccessful
	return observed, nil
}

// find returns the binding of a workload and a client for its control plane, nil if there is none. Cluster-scoped workloads are
// on the hub, all others in one of the cells. It fails for one that is being moved.
func (c *Controller) find(ctx context.Context, workload appsv1alpha1.ObjectReference) (client.Client, client.Object, error) {
	key := client.ObjectKey{Namespace: workload.Namespace, Name: names.BindingName(workload.Kind, workload.Name)}
	if workload.Namespace == "" {
		binding := &workv1alpha2.ClusterResourceBinding{}
		if err := c.direct.Get(ctx, key, binding); err != nil {
			return nil, nil, ignoreMissing(err)
		}
		return c.client, binding, nil
	}
	holders, err := c.holders(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(holders)) {
		binding := &workv1alpha2.ResourceBinding{}
		err := holders[name].reader.Get(ctx, key, binding)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reading binding %s in %s: %w", key, name, err)
		}
		ref := &binding.Spec.Resource
		switch state := binding.Labels[names.RebalanceStatusLabel]; {
		case state == names.RebalanceMigrated || ref.Kind != workload.Kind || ref.APIVersion != workload.APIVersion:
		case state != "":
			return nil, nil, fmt.Errorf("the binding %s is being moved to another cell", key)
		default:
			return holders[name].client, binding, nil
		}
	}
	return nil, nil, nil
}

// holder is a control plane with bindings.
type holder struct {
	client client.Client
	reader client.Reader
}

// holders returns the cells and the hub, which has its own engine.
func (c *Controller) holders(ctx context.Context) (map[string]holder, error) {
	all := map[string]holder{"the hub": {c.client, c.direct}}
	if c.options.Cells == nil {
		return all, nil
	}
	cells, err := c.options.Cells(ctx)
	if err != nil {
		return nil, err
	}
	for name, cell := range cells {
		all["cell "+name] = holder{cell, cell}
	}
	return all, nil
}

func specOf(binding client.Object) *workv1alpha2.ResourceBindingSpec {
	if b, ok := binding.(*workv1alpha2.ClusterResourceBinding); ok {
		return &b.Spec
	}
	return &binding.(*workv1alpha2.ResourceBinding).Spec
}

func ignoreMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
