// Package clusterspec sets defaults in Clusters: zones from the deprecated zone, the grades of nodes, and the time at which
// a NoExecute taint was added.
package clusterspec

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/hub/grade"
)

// Controller sets defaults in Clusters.
type Controller struct {
	client client.Client
}

// Add registers the controller with a manager.
func Add(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("cluster-spec").
		For(&clusterv1alpha1.Cluster{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(&Controller{client: mgr.GetClient()})
}

// Reconcile sets the defaults of one Cluster.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cluster := &clusterv1alpha1.Cluster{}
	if err := c.client.Get(ctx, request.NamespacedName, cluster); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := cluster.DeepCopy()
	Complete(&cluster.Spec, time.Now())
	if equality.Semantic.DeepEqual(before.Spec, cluster.Spec) {
		return reconcile.Result{}, nil
	}
	err := c.client.Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("setting defaults of cluster %s: %w", cluster.Name, err)
	}
	return reconcile.Result{}, nil
}

// Complete sets defaults. It is idempotent.
func Complete(spec *clusterv1alpha1.ClusterSpec, now time.Time) {
	if spec.Zone != "" && len(spec.Zones) == 0 {
		spec.Zones, spec.Zone = []string{spec.Zone}, ""
	}
	if len(spec.ResourceModels) == 0 {
		spec.ResourceModels = grade.Default()
	}
	for i := range spec.Taints {
		taint := &spec.Taints[i]
		if taint.Effect == corev1.TaintEffectNoExecute && taint.TimeAdded == nil {
			taint.TimeAdded = &metav1.Time{Time: now}
		}
	}
}
