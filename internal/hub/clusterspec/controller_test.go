package clusterspec

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/hub/grade"
	"github.com/cellplane/cellplane/internal/hub/hubtest"
)

func TestComplete(t *testing.T) {
	now := time.Unix(1e9, 0)
	later := metav1.NewTime(now.Add(time.Hour))
	for name, test := range map[string]struct{ spec, want clusterv1alpha1.ClusterSpec }{
		"a zone becomes zones": {
			clusterv1alpha1.ClusterSpec{Zone: "a"},
			clusterv1alpha1.ClusterSpec{Zones: []string{"a"}, ResourceModels: grade.Default()},
		},
		"zones stay": {
			clusterv1alpha1.ClusterSpec{Zone: "a", Zones: []string{"b", "c"}},
			clusterv1alpha1.ClusterSpec{Zone: "a", Zones: []string{"b", "c"}, ResourceModels: grade.Default()},
		},
		"a taint that evicts gets a time, once": {
			clusterv1alpha1.ClusterSpec{Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}, {Key: "b", Effect: corev1.TaintEffectNoExecute, TimeAdded: &later}, {Key: "c", Effect: corev1.TaintEffectNoSchedule}}},
			clusterv1alpha1.ClusterSpec{ResourceModels: grade.Default(), Taints: []corev1.Taint{
				{Key: "a", Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: now}}, {Key: "b", Effect: corev1.TaintEffectNoExecute, TimeAdded: &later}, {Key: "c", Effect: corev1.TaintEffectNoSchedule},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.spec.DeepCopy()
			for range 2 {
				Complete(got, now)
				if diff := cmp.Diff(test.want, *got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestClustersAreCompleted(t *testing.T) {
	hub := hubtest.Start(t, func(_ context.Context, mgr manager.Manager) error { return Add(mgr) })
	cluster := hub.Cluster(t, "zone", clusterv1alpha1.ClusterSpec{Zone: "a"})
	completed := hub.Eventually(t, "zone has become zones", cluster, func(c *clusterv1alpha1.Cluster) bool {
		return c.Spec.Zone == "" && len(c.Spec.Zones) == 1 && c.Spec.Zones[0] == "a"
	})
	// The defaults of the API and of the controller are the same.
	if diff := cmp.Diff(grade.Default(), completed.Spec.ResourceModels); diff != "" {
		t.Error(diff)
	}
	patch := []byte(`{"spec":{"resourceModels":[],"taints":[{"key":"k","effect":"NoExecute"}]}}`)
	if err := hub.Client.Patch(t.Context(), cluster, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	hub.Eventually(t, "there are grades again, and the taint has a time", cluster, func(c *clusterv1alpha1.Cluster) bool {
		return len(c.Spec.ResourceModels) == 9 && len(c.Spec.Taints) == 1 && c.Spec.Taints[0].TimeAdded != nil
	})
}
