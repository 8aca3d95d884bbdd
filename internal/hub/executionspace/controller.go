// Package executionspace creates the namespace for the Works of each Cluster. A finalizer keeps a deleted Cluster until its
// Works are gone.
package executionspace

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/hub/agentrights"
	"github.com/cellplane/cellplane/internal/hub/eventnote"
	"github.com/cellplane/cellplane/internal/hub/wake"
)

// Options configure the controller.
type Options struct {
	// Cells returns clients for all control planes besides the hub that may hold Works; nil means that there are none.
	Cells func(ctx context.Context) (map[string]client.Client, error)
	// RetryAfter is the time between checks whether a space is empty; 0 means two seconds.
	RetryAfter time.Duration
}

// Controller creates and removes execution spaces.
type Controller struct {
	client   client.Client
	works    client.Client // uncached
	recorder events.EventRecorder
	emptier  *emptier
	options  Options
}

// Add registers the controller with a manager.
func Add(mgr manager.Manager, options Options) error {
	if options.RetryAfter == 0 {
		options.RetryAfter = 2 * time.Second
	}
	if options.Cells == nil {
		options.Cells = func(context.Context) (map[string]client.Client, error) { return nil, nil }
	}
	emptier, err := newEmptier(mgr.GetConfig())
	if err != nil {
		return err
	}
	works, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return err
	}
	c := &Controller{client: mgr.GetClient(), works: works, recorder: eventnote.Recorder(mgr.GetEventRecorder("execution-space")), emptier: emptier, options: options}
	return builder.ControllerManagedBy(mgr).
		Named("execution-space").
		For(&clusterv1alpha1.Cluster{}).
		WatchesMetadata(&corev1.Namespace{}, wake.ClusterOfSpace()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(c)
}

// Reconcile creates the space of a Cluster, or removes it with the Cluster. It also finishes the deletion of a space whose
// Cluster is gone, for example after a forced unjoin.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cluster := &clusterv1alpha1.Cluster{}
	err := c.client.Get(ctx, request.NamespacedName, cluster)
	switch {
	case apierrors.IsNotFound(err):
		space, err := c.space(ctx, request.Name)
		if err != nil || space == nil || space.DeletionTimestamp == nil {
			return reconcile.Result{}, err
		}
		return c.again(c.remove(ctx, request.Name))
	case err != nil:
		return reconcile.Result{}, err
	case cluster.DeletionTimestamp == nil:
		return reconcile.Result{}, c.ensure(ctx, cluster)
	case !controllerutil.ContainsFinalizer(cluster, names.ClusterFinalizer):
		return reconcile.Result{}, nil
	}
	gone, err := c.remove(ctx, cluster.Name)
	if err != nil {
		c.recorder.Eventf(cluster, nil, corev1.EventTypeWarning, names.EventRemoveExecutionSpaceFailed, "RemoveExecutionSpace",
			"Namespace %s cannot be removed: %v", names.ExecutionNamespace(cluster.Name), err)
	}
	if err != nil || !gone {
		return c.again(gone, err)
	}
	return reconcile.Result{}, c.release(ctx, cluster)
}

// again requeues a space that is not gone.
func (c *Controller) again(gone bool, err error) (reconcile.Result, error) {
	if gone || err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: c.options.RetryAfter}, nil
}

// ensure adds the finalizer before it creates the space, so that no space is left behind.
func (c *Controller) ensure(ctx context.Context, cluster *clusterv1alpha1.Cluster) error {
	before := cluster.DeepCopy()
	if controllerutil.AddFinalizer(cluster, names.ClusterFinalizer) {
		// Others write to the list of finalizers, too.
		if err := c.client.Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("adding the finalizer to cluster %s: %w", cluster.Name, err)
		}
	}
	found, err := c.space(ctx, cluster.Name)
	if err != nil || found != nil {
		return err
	}
	name := names.ExecutionNamespace(cluster.Name)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{names.ManagedLabel: names.ManagedValue}}}
	err = c.client.Create(ctx, space)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		c.recorder.Eventf(cluster, nil, corev1.EventTypeWarning, names.EventCreateExecutionSpaceFailed, "CreateExecutionSpace",
			"Namespace %s cannot be created: %v", name, err)
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	c.recorder.Eventf(cluster, nil, corev1.EventTypeNormal, names.EventCreateExecutionSpaceSucceed, "CreateExecutionSpace", "Created namespace %s", name)
	return nil
}

// space returns the namespace of a Cluster's Works, nil if there is none.
func (c *Controller) space(ctx context.Context, cluster string) (*metav1.PartialObjectMetadata, error) {
	space := &metav1.PartialObjectMetadata{}
	space.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := c.client.Get(ctx, client.ObjectKey{Name: names.ExecutionNamespace(cluster)}, space)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return space, err
}

// remove deletes the space and reports whether it is gone. It first deletes the Works in all control planes; the engines
// remove what these have propagated.
func (c *Controller) remove(ctx context.Context, cluster string) (gone bool, err error) {
	name := names.ExecutionNamespace(cluster)
	cells, err := c.options.Cells(ctx)
	if err != nil {
		return false, fmt.Errorf("connecting to the cells: %w", err)
	}
	left := 0
	for cell, store := range cells {
		works, err := deleteWorks(ctx, store, name)
		if err != nil {
			return false, fmt.Errorf("deleting the works of cluster %s in cell %s: %w", cluster, cell, err)
		}
		left += works
	}
	space, err := c.space(ctx, cluster)
	if err != nil {
		return false, err
	}
	if space == nil {
		return left == 0, nil
	}
	works, err := deleteWorks(ctx, c.works, name)
	if err != nil {
		return false, fmt.Errorf("deleting the works of cluster %s: %w", cluster, err)
	}
	if space.DeletionTimestamp == nil {
		if err := client.IgnoreNotFound(c.client.Delete(ctx, space)); err != nil {
			return false, fmt.Errorf("deleting namespace %s: %w", name, err)
		}
		return false, nil
	}
	if left+works > 0 {
		return false, nil
	}
	if err := agentrights.Remove(ctx, c.works, cluster); err != nil {
		return false, err
	}
	return c.emptier.finalize(ctx, name)
}

// deleteWorks deletes all Works of a namespace and returns how many are left. What a move has left behind does not count: engines ignore it, and the
// mover removes it later.
func deleteWorks(ctx context.Context, store client.Client, namespace string) (left int, err error) {
	works := &metav1.PartialObjectMetadataList{}
	works.SetGroupVersionKind(workv1alpha1.GroupVersion.WithKind("WorkList"))
	if err := store.List(ctx, works, client.InNamespace(namespace)); err != nil {
		if meta.IsNoMatchError(err) {
			return 0, nil
		}
		return 0, err
	}
	for i := range works.Items {
		work := &works.Items[i]
		if work.Labels[names.RebalanceStatusLabel] == names.RebalanceMigrated {
			continue
		}
		left++
		if work.DeletionTimestamp != nil {
			continue
		}
		if err := client.IgnoreNotFound(store.Delete(ctx, work)); err != nil {
			return 0, err
		}
	}
	return left, nil
}

// release removes the finalizer of the Cluster.
func (c *Controller) release(ctx context.Context, cluster *clusterv1alpha1.Cluster) error {
	before := cluster.DeepCopy()
	controllerutil.RemoveFinalizer(cluster, names.ClusterFinalizer)
	err := c.client.Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of cluster %s: %w", cluster.Name, err)
	}
	c.recorder.Eventf(cluster, nil, corev1.EventTypeNormal, names.EventRemoveExecutionSpaceSucceed, "RemoveExecutionSpace",
		"Removed namespace %s", names.ExecutionNamespace(cluster.Name))
	return nil
}
