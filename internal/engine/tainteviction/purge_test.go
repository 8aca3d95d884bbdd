package tainteviction

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/eviction"
)

// TestPurgeMode uses the purge mode of the policy, then that of the engine, then Gracefully.
func TestPurgeMode(t *testing.T) {
	for _, test := range []struct{ engine, policy, want policyv1alpha1.PurgeMode }{
		{"", "", policyv1alpha1.PurgeModeGracefully},
		{policyv1alpha1.PurgeModeDirectly, "", policyv1alpha1.PurgeModeDirectly},
		{"", policyv1alpha1.PurgeModeDirectly, policyv1alpha1.PurgeModeDirectly},
		{policyv1alpha1.PurgeModeDirectly, policyv1alpha1.PurgeModeGracefully, policyv1alpha1.PurgeModeGracefully},
	} {
		for _, says := range []bool{true, false} {
			if !says && test.policy != "" {
				continue
			}
			t.Run(fmt.Sprintf("engine %q, policy %q, failover in the policy: %t", test.engine, test.policy, says), func(t *testing.T) {
				controller := &Controller{options: Options{PurgeMode: test.engine}}
				b := &workv1alpha2.ResourceBinding{Spec: workv1alpha2.ResourceBindingSpec{Clusters: []workv1alpha2.TargetCluster{{Name: "a"}}}}
				if says {
					b.Spec.Failover = &policyv1alpha1.FailoverBehavior{Cluster: &policyv1alpha1.ClusterFailoverBehavior{PurgeMode: test.policy}}
				}
				from := departure{&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &corev1.Taint{Key: "down", Effect: corev1.TaintEffectNoExecute}}
				now := metav1.Now().Time
				if !eviction.Evict(b, controller.evictionOf(b, from), now) {
					t.Fatal("not evicted")
				}
				if task := b.Spec.GracefulEvictionTasks[0]; task.PurgeMode != test.want || task.Message != "The taint down:NoExecute of cluster a is not tolerated." {
					t.Errorf("task = %+v", task)
				}
			})
		}
	}
}
