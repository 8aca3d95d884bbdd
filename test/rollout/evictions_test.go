package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/testenv"
)

// A member fails in the middle of an update, and the workload is evicted from it: the others replace its pods at once, and finish the update, while it is away.
// In the middle of the next update the scheduler moves replicas back to it. What people have taken out of the federation's hands there is replaced, too, but stays in it.
func TestMemberFailsDuringUpdate(t *testing.T) {
	startEngine(t)
	w := newSlowWorkload(t, readiness{300 * time.Millisecond, 1500 * time.Millisecond}, 9, intstr.FromInt32(2), intstr.FromInt32(1))
	opened := newWorkload(t, 3, intstr.FromInt32(1), intstr.FromInt32(1))
	repaired := opened.repair("member2", 10)
	w.watch(9)
	w.setImage(2)
	w.begun(2)
	back := w.lose("member2")
	w.replaced("member2", 2, 9)
	opened.replaced("member2", 1, 3)
	w.pods.held("an update while a member is lost")
	w.allow(9)
	back()
	w.finished(2, 9)
	opened.heldInLeftMember("member2", repaired)

	w.setImage(3)
	w.begun(3)
	w.place(func(placement *policyv1alpha1.Placement) {
		everywhere := policyv1alpha1.ClusterAffinity{ClusterNames: []string{"member1", "member2", "member3"}}
		placement.ReplicaScheduling.WeightPreference = &policyv1alpha1.ClusterPreferences{StaticWeightList: []policyv1alpha1.StaticClusterWeight{{TargetCluster: everywhere, Weight: 1}}}
	})
	testenv.Eventually(t, "replicas are to go back", func(context.Context) (bool, error) {
		clusters := w.binding().Spec.Clusters
		return len(clusters) == 3, fmt.Errorf("the clusters are %v", clusters)
	})
	if w.old(3) == 0 {
		t.Error("the update had finished before replicas were moved")
	}
	w.placed()
	w.finished(3, 9)
	if has := w.inMember("member2")[image(3)]; has != 3 {
		t.Errorf("member2 has %d of 9 pods:\n%s", has, w.describe())
	}
	w.pods.held("an update while replicas are moved")
}

// lose has a member fail, and the workload evicted from it: its API server ends, the Cluster is not ready, and gets a taint. The workload must not be scaled meanwhile.
// The function brings the member back, and waits until the copy in it is gone.
//
// The pods of the member count for nothing until then. So as many fewer pods are available at first: the others have to replace them.
func (w *workload) lose(name string) (back func()) {
	w.t.Helper()
	server, err := federation.Process(name + "/" + kubebin.KubeAPIServer)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := server.Halt(); err != nil {
		w.t.Fatal(err)
	}
	restore := func() error {
		return errors.Join(server.Resurrect(), setCluster(context.Background(), name, metav1.ConditionTrue))
	}
	w.t.Cleanup(func() { _ = restore() })
	target := slices.IndexFunc(w.binding().Spec.Clusters, func(target workv1alpha2.TargetCluster) bool { return target.Name == name })
	if target < 0 {
		w.t.Fatalf("%s does not have the workload:\n%s", name, w.describe())
	}
	w.pods.lose(name, int(w.binding().Spec.Clusters[target].Replicas))
	if err := setCluster(w.t.Context(), name, metav1.ConditionFalse, corev1.Taint{Key: "failed", Effect: corev1.TaintEffectNoExecute}); err != nil {
		w.t.Fatal(err)
	}
	testenv.Eventually(w.t, "the workload is evicted from "+name, func(context.Context) (bool, error) {
		spec := w.binding().Spec
		chosen := slices.ContainsFunc(spec.Clusters, func(target workv1alpha2.TargetCluster) bool { return target.Name == name })
		return !chosen, fmt.Errorf("the clusters are %v", spec.Clusters)
	})
	return func() {
		w.t.Helper()
		if err := restore(); err != nil {
			w.t.Fatal(err)
		}
		w.left(name)
		testenv.Eventually(w.t, name+" has no pods", func(ctx context.Context) (bool, error) {
			var list corev1.PodList
			err := members[name].List(ctx, &list, ctrlclient.InNamespace(w.ns))
			return err == nil && len(list.Items) == 0, err
		})
		w.pods.find(name)
	}
}

// setCluster sets the taints of a Cluster, and whether it is ready. Here is no hub manager, which would do that.
func setCluster(ctx context.Context, name string, ready metav1.ConditionStatus, taints ...corev1.Taint) error {
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := cell.Get(ctx, ctrlclient.ObjectKeyFromObject(cluster), cluster); err != nil {
		return err
	}
	cluster.Status.Conditions = []metav1.Condition{{Type: names.ClusterReady, Status: ready, Reason: "Test", LastTransitionTime: metav1.Now()}}
	if err := cell.Status().Update(ctx, cluster); err != nil {
		return err
	}
	cluster.Spec.Taints = taints
	return cell.Update(ctx, cluster)
}

// replaced waits until the members but one have all replicas of a version, available.
func (w *workload) replaced(lost string, version int, replicas int32) {
	w.t.Helper()
	testenv.Eventually(w.t, fmt.Sprintf("the others have %d pods of version %d", replicas, version), func(context.Context) (bool, error) {
		sum := int32(0)
		for name := range members {
			if name == lost {
				continue
			}
			d := w.in(name)
			s := &d.Status
			if d.Spec.Template.Spec.Containers[0].Image == image(version) && s.ObservedGeneration == d.Generation && s.UpdatedReplicas == s.Replicas && s.AvailableReplicas == s.Replicas {
				sum += s.Replicas
			}
		}
		return sum == replicas, fmt.Errorf("%d are updated and available\n%s", sum, w.describe())
	})
}
