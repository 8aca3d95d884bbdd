package scheduler

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/testenv"
)

// TestClusterChangeWakes retries waiting bindings when an eligible cluster changes, and only then.
func TestClusterChangeWakes(t *testing.T) {
	const bindings = 200
	s, _, woken := newWaiting(t, bindings) // only cluster a is eligible
	change := func(cluster string) {
		t.Helper()
		s.cell.Clusters.Set(&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: cluster, ResourceVersion: "2", Labels: map[string]string{"new": "label"}}})
		testenv.Eventually(t, "the queue is empty", func(context.Context) (bool, error) { return s.queue.Len() == 0, nil })
	}
	change("b")
	if woken() != 0 {
		t.Fatalf("%d bindings were retried although the cluster is not eligible", woken())
	}
	change("a")
	testenv.Eventually(t, "all bindings are retried", func(context.Context) (bool, error) { return woken() == bindings, fmt.Errorf("%d are retried", woken()) })
}

// TestSameForScheduling checks which changes of a cluster are relevant to placements.
func TestSameForScheduling(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		change func(*clusterv1alpha1.Cluster)
		same   bool
	}{
		"nothing":        {func(*clusterv1alpha1.Cluster) {}, true},
		"label":          {func(c *clusterv1alpha1.Cluster) { c.Labels["tier"] = "silver" }, false},
		"labels removed": {func(c *clusterv1alpha1.Cluster) { c.Labels = nil }, false},
		"taint effect":   {func(c *clusterv1alpha1.Cluster) { c.Spec.Taints[0].Effect = corev1.TaintEffectNoExecute }, false},
		"taints removed": {func(c *clusterv1alpha1.Cluster) { c.Spec.Taints = nil }, false},
		"region":         {func(c *clusterv1alpha1.Cluster) { c.Spec.Region = "south" }, false},
		"provider":       {func(c *clusterv1alpha1.Cluster) { c.Spec.Provider = "other" }, false},
		"zones":          {func(c *clusterv1alpha1.Cluster) { c.Spec.Zones = []string{"n1", "n2"} }, false},
		"APIs":           {func(c *clusterv1alpha1.Cluster) { c.Status.APIEnablements[0].Resources = nil }, false},
		"being deleted":  {func(c *clusterv1alpha1.Cluster) { c.DeletionTimestamp = &now }, false},
		"annotation and resource version": {func(c *clusterv1alpha1.Cluster) {
			c.Annotations, c.ResourceVersion = map[string]string{"note": "seen"}, "2"
		}, true},
		"health and capacity": {func(c *clusterv1alpha1.Cluster) {
			c.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse}}
			c.Status.ResourceSummary = &clusterv1alpha1.ResourceSummary{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
		}, true},
	} {
		before := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1", Labels: map[string]string{"tier": "gold"}}}
		before.Spec.Region, before.Spec.Provider, before.Spec.Zones = "north", "own", []string{"n1"}
		before.Spec.Taints = []corev1.Taint{{Key: "full", Effect: corev1.TaintEffectNoSchedule}}
		before.Status.APIEnablements = []clusterv1alpha1.APIEnablement{{GroupVersion: "apps/v1", Resources: []clusterv1alpha1.APIResource{{Kind: "Deployment"}}}}
		after := before.DeepCopy()
		test.change(after)
		if sameForScheduling(before, after) != test.same {
			t.Errorf("%s: sameForScheduling() = %t", name, !test.same)
		}
	}
}
