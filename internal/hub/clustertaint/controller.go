// Package clustertaint manages the taints of Clusters: those for the condition Ready, and those of ClusterTaintPolicies. One
// controller does both because both write the same list.
package clustertaint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/affinity"
	"github.com/cellplane/cellplane/internal/hub/eventnote"
	"github.com/cellplane/cellplane/internal/hub/wake"
)

// Controller taints Clusters.
type Controller struct {
	client   client.Client
	recorder events.EventRecorder
}

// Add registers the controller with a manager.
func Add(mgr manager.Manager) error {
	c := &Controller{client: mgr.GetClient(), recorder: eventnote.Recorder(mgr.GetEventRecorder("cluster-taint"))}
	return builder.ControllerManagedBy(mgr).
		Named("cluster-taint").
		For(&clusterv1alpha1.Cluster{}).
		Watches(&policyv1alpha1.ClusterTaintPolicy{}, wake.AllClusters(c.client)).
		Complete(c)
}

// Reconcile updates the taints of one Cluster from its conditions.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cluster := &clusterv1alpha1.Cluster{}
	if err := c.client.Get(ctx, request.NamespacedName, cluster); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	policies, err := c.policies(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	before := cluster.DeepCopy()
	changed := taints{list: cluster.Spec.Taints, now: time.Now()}
	changed.apply(cluster.Status.Conditions, targets(cluster, policies))
	cluster.Spec.Taints = changed.list
	if equality.Semantic.DeepEqual(before.Spec.Taints, cluster.Spec.Taints) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, c.write(ctx, before, cluster)
}

// write updates the taints and records an event.
func (c *Controller) write(ctx context.Context, before, cluster *clusterv1alpha1.Cluster) error {
	err := c.client.Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return client.IgnoreNotFound(err) // conflict or deletion; the next event reconciles again
	}
	if err != nil {
		c.recorder.Eventf(cluster, nil, corev1.EventTypeWarning, names.EventTaintClusterFailed, "Taint", "Changing the taints of the cluster failed: %v", err)
		return fmt.Errorf("changing the taints of cluster %s: %w", cluster.Name, err)
	}
	added, removed := difference(before.Spec.Taints, cluster.Spec.Taints)
	c.recorder.Eventf(cluster, nil, corev1.EventTypeNormal, names.EventTaintClusterSucceed, "Taint", "%s", describe(added, removed))
	return nil
}

func describe(added, removed []string) string {
	var parts []string
	if len(added) > 0 {
		parts = append(parts, "added "+strings.Join(added, ", "))
	}
	if len(removed) > 0 {
		parts = append(parts, "removed "+strings.Join(removed, ", "))
	}
	return "Taints changed: " + strings.Join(parts, "; ")
}

// compiled is a policy with its parsed selectors.
type compiled struct {
	policy  *policyv1alpha1.ClusterTaintPolicy
	matcher affinity.Matcher
}

// policies returns all policies by name. Invalid ones are skipped.
func (c *Controller) policies(ctx context.Context) ([]compiled, error) {
	list := &policyv1alpha1.ClusterTaintPolicyList{}
	if err := c.client.List(ctx, list); err != nil {
		return nil, err
	}
	all := make([]compiled, 0, len(list.Items))
	for i := range list.Items {
		policy := &list.Items[i]
		matcher, err := affinity.Compile(policy.Spec.TargetClusters)
		if err != nil {
			klog.FromContext(ctx).Error(err, "skipping an invalid policy", "clusterTaintPolicy", policy.Name)
			continue
		}
		all = append(all, compiled{policy: policy, matcher: matcher})
	}
	slices.SortFunc(all, func(a, b compiled) int { return cmp.Compare(a.policy.Name, b.policy.Name) })
	return all, nil
}
