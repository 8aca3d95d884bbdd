package agentrights

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/hub/wake"
)

// interval is how often rights are corrected: they are not watched.
const interval = 5 * time.Minute

// Controller keeps the rights of agents.
type Controller struct {
	client client.Client
	direct client.Client // uncached
}

// Add registers the controller with a manager.
func Add(mgr manager.Manager) error {
	direct, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return err
	}
	return builder.ControllerManagedBy(mgr).
		Named("agent-rights").
		For(&clusterv1alpha1.Cluster{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&corev1.Namespace{}, wake.ClusterOfSpace()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(&Controller{client: mgr.GetClient(), direct: direct})
}

// Reconcile gives the agent of a Cluster the rights of its mode, and takes them from agents without a Cluster. An agent keeps its rights while its Cluster
// is being deleted: it removes what the Works there have created. The execution space takes them at the end.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cluster := &clusterv1alpha1.Cluster{}
	err := c.client.Get(ctx, request.NamespacedName, cluster)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return reconcile.Result{}, err
	case err != nil:
		return reconcile.Result{}, Remove(ctx, c.direct, request.Name)
	case cluster.DeletionTimestamp != nil:
		return reconcile.Result{}, nil
	case cluster.Spec.SyncMode != clusterv1alpha1.Pull:
		return reconcile.Result{RequeueAfter: interval}, EnsureReporter(ctx, c.direct, request.Name)
	}
	err = Ensure(ctx, c.direct, cluster.Name)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil // its namespace does not exist yet; the next event is of its creation
	}
	return reconcile.Result{RequeueAfter: interval}, err
}
