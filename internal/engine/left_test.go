package engine_test

import (
	"context"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/kubebin"
)

// Bindings that come from another cell, or from a backup, come without their Works. Copies in clusters that they have left before are removed as they would have been
// there, also if the cluster answers only later: of an eviction when it ends, of a cluster that is no longer chosen, of a template that is deleted.
func TestLeftInAnotherCell(t *testing.T) {
	ns := namespace(t)
	divided := func(spec *policyv1alpha1.PropagationSpec) {
		spec.Placement.ReplicaScheduling = &policyv1alpha1.ReplicaSchedulingStrategy{
			ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDivided, ReplicaDivisionPreference: policyv1alpha1.ReplicaDivisionPreferenceWeighted,
		}
	}
	shared, workloads := policy(ns, "shared", []string{"ConfigMap"}), policy(ns, "workloads", []string{"Deployment"}, divided)
	create(t, shared, workloads, deployment(ns, "web", 4))
	for _, name := range []string{"evicted", "unchosen", "deleted"} {
		create(t, configMap(ns, name, map[string]string{"k": "1"}))
	}
	both := func(b *workv1alpha2.ResourceBinding) bool {
		return len(b.Spec.Clusters) == 2 && len(b.Status.AggregatedStatus) == 2
	}
	bindings := []string{"evicted-configmap", "unchosen-configmap", "deleted-configmap", "web-deployment"}
	for _, name := range bindings {
		until(t, "the binding reports both members", cell, bindingRef(ns, name), both)
	}
	until(t, "the workload is available", cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool { return d.Status.AvailableReplicas == 4 })

	// In the former cell member2 was left, and then the objects moved.
	stopEngine()
	restarted := false
	restart := func() {
		if !restarted {
			restarted, stopEngine = true, startEngine(context.Background())
		}
	}
	defer restart()
	edit(t, cell, shared, func(p *policyv1alpha1.PropagationPolicy) { inMembers("member1")(&p.Spec) })
	edit(t, cell, workloads, func(p *policyv1alpha1.PropagationPolicy) { inMembers("member1")(&p.Spec) })
	for _, name := range bindings {
		edit(t, cell, bindingRef(ns, name), func(b *workv1alpha2.ResourceBinding) {
			b.Spec.Placement.ClusterAffinity = &policyv1alpha1.ClusterAffinity{ClusterNames: []string{"member1"}} // else member2 would be chosen again for a moment
			b.Spec.Clusters = slices.DeleteFunc(b.Spec.Clusters, func(c workv1alpha2.TargetCluster) bool { return c.Name == "member2" })
			if b.Spec.Clusters[0].Replicas > 0 {
				b.Spec.Clusters[0].Replicas = 4
			}
			if name == "evicted-configmap" {
				b.Spec.GracefulEvictionTasks = []workv1alpha2.GracefulEvictionTask{{
					FromCluster: "member2", PurgeMode: policyv1alpha1.PurgeModeNever, SuppressDeletion: ptr.To(true), Reason: "Test", Producer: "Test",
				}}
			}
		})
	}
	for _, obj := range []ctrlclient.Object{configMapRef(ns, "deleted"), bindingRef(ns, "deleted-configmap")} {
		if err := cell.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	removeWorks(t, ns)

	// Member2 does not answer at first. What has to be removed there is not forgotten.
	server, err := federation.Process("member2/" + kubebin.KubeAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Halt(); err != nil {
		t.Fatal(err)
	}
	resurrected := false
	resurrect := func() {
		if !resurrected {
			resurrected = true
			if err := server.Resurrect(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(resurrect)
	restart()
	for _, name := range []string{"evicted", "unchosen"} {
		until(t, "there is a Work for member1", cell, workRef("member1", "ConfigMap", ns, name), anything[*workv1alpha1.Work])
	}
	untilGone(t, "it is removed from member1", members["member1"], configMapRef(ns, "deleted"))
	barrier(t, ns)
	until(t, "the status still names the member that was left", cell, bindingRef(ns, "unchosen-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
		return b.Status.SchedulerObservedGeneration == b.Generation && slices.ContainsFunc(b.Status.AggregatedStatus, func(item workv1alpha2.AggregatedStatusItem) bool {
			return item.ClusterName == "member2" && !item.Applied
		})
	})
	if err := cell.Get(t.Context(), ctrlclient.ObjectKeyFromObject(bindingRef(ns, "deleted-configmap")), bindingRef(ns, "deleted-configmap")); err != nil {
		t.Errorf("the binding does not wait until its copies are gone: %v", err)
	}

	resurrect()
	untilGone(t, "the binding is gone", cell, bindingRef(ns, "deleted-configmap"))
	for what, obj := range map[string]ctrlclient.Object{
		"a deleted ConfigMap": configMapRef(ns, "deleted"), "a ConfigMap that is placed elsewhere": configMapRef(ns, "unchosen"), "a workload that is placed elsewhere": deploymentRef(ns, "web"),
	} {
		untilGone(t, what+" is removed from member2", members["member2"], obj)
	}
	until(t, "all replicas are in member1", members["member1"], deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool { return d.Status.AvailableReplicas == 4 })
	until(t, "the status does not name it any more", cell, bindingRef(ns, "unchosen-configmap"), func(b *workv1alpha2.ResourceBinding) bool { return len(b.Status.AggregatedStatus) == 1 })

	// The eviction ends here.
	until(t, "the copy that is evicted has a Work again", cell, workRef("member2", "ConfigMap", ns, "evicted"), anything[*workv1alpha1.Work])
	delivered(t, "member2", ns, "evicted", "k", "1")
	edit(t, cell, bindingRef(ns, "evicted-configmap"), func(b *workv1alpha2.ResourceBinding) {
		b.Spec.GracefulEvictionTasks[0].SuppressDeletion = ptr.To(false)
	})
	untilGone(t, "the evicted copy is removed", members["member2"], configMapRef(ns, "evicted"))
	delivered(t, "member1", ns, "evicted", "k", "1")
}

// removeWorks removes the Works of a namespace without an engine, so that nothing happens in the members.
func removeWorks(t *testing.T, ns string) {
	t.Helper()
	var works workv1alpha1.WorkList
	if err := cell.List(t.Context(), &works); err != nil {
		t.Fatal(err)
	}
	removed := 0
	for i := range works.Items {
		work := &works.Items[i]
		if work.Annotations[names.ResourceBindingNamespaceAnnotation] != ns {
			continue
		}
		edit(t, cell, work, func(w *workv1alpha1.Work) { w.Finalizers = nil })
		if err := cell.Delete(t.Context(), work); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		removed++
	}
	if removed == 0 {
		t.Fatal("there are no Works")
	}
}
