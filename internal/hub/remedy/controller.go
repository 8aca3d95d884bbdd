// Package remedy writes the actions that Remedies request into the status of Clusters. Others execute them.
package remedy

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	remedyv1alpha1 "github.com/cellplane/cellplane/api/remedy/v1alpha1"
	"github.com/cellplane/cellplane/internal/hub/wake"
)

// Controller requests actions.
type Controller struct {
	client client.Client
}

// Add registers the controller with a manager.
func Add(mgr manager.Manager) error {
	c := &Controller{client: mgr.GetClient()}
	return builder.ControllerManagedBy(mgr).
		Named("remedy").
		For(&clusterv1alpha1.Cluster{}).
		Watches(&remedyv1alpha1.Remedy{}, wake.AllClusters(c.client)).
		Complete(c)
}

// Reconcile writes the requested actions of one Cluster.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cluster := &clusterv1alpha1.Cluster{}
	if err := c.client.Get(ctx, request.NamespacedName, cluster); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	remedies := &remedyv1alpha1.RemedyList{}
	if err := c.client.List(ctx, remedies); err != nil {
		return reconcile.Result{}, err
	}
	wanted := actions(cluster, remedies.Items)
	if slices.Equal(wanted, cluster.Status.RemedyActions) {
		return reconcile.Result{}, nil
	}
	before := cluster.DeepCopy()
	cluster.Status.RemedyActions = wanted
	// The patch contains only this field, which no other component writes.
	if err := c.client.Status().Patch(ctx, cluster, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("writing the remedy actions of cluster %s: %w", cluster.Name, err)
	}
	return reconcile.Result{}, nil
}

// actions returns the actions that the remedies request for a Cluster, sorted and without duplicates.
func actions(cluster *clusterv1alpha1.Cluster, remedies []remedyv1alpha1.Remedy) []string {
	var all []string
	for i := range remedies {
		spec := &remedies[i].Spec
		if remedies[i].DeletionTimestamp != nil || !concerns(spec.ClusterAffinity, cluster.Name) || !called(spec.DecisionMatches, cluster.Status.Conditions) {
			continue
		}
		for _, action := range spec.Actions {
			all = append(all, string(action))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func concerns(affinity *remedyv1alpha1.ClusterAffinity, cluster string) bool {
	return affinity == nil || slices.Contains(affinity.ClusterNames, cluster)
}

// called reports whether any decision matches; without decisions, the actions always apply.
func called(decisions []remedyv1alpha1.DecisionMatch, conditions []metav1.Condition) bool {
	if len(decisions) == 0 {
		return true
	}
	return slices.ContainsFunc(decisions, func(decision remedyv1alpha1.DecisionMatch) bool {
		match := decision.ClusterConditionMatch
		if match == nil {
			return false
		}
		found := meta.FindStatusCondition(conditions, string(match.ConditionType))
		if found == nil {
			return false
		}
		equal := string(found.Status) == match.ConditionStatus
		return equal == (match.Operator == remedyv1alpha1.ClusterConditionEqual)
	})
}
