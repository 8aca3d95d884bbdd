package scheduling_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// S2, S12: affinity terms are tried in order. Earlier terms are tried again only after a change of the placement or
// a requested rescheduling.
func TestAffinityGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	w.policy(aggregated, func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.Placement.ClusterAffinity = nil
		p.Spec.Placement.ClusterAffinities = []policyv1alpha1.ClusterAffinityTerm{
			{AffinityName: "first", ClusterAffinity: *w.affinity("a")}, {AffinityName: "second", ClusterAffinity: *w.affinity("b")},
		}
	})
	w.capacity("a", 1)
	w.create(w.deployment("web", 2))
	w.until("the second term is in use", "web", func(b *workv1alpha2.ResourceBinding) bool {
		return w.placed(b) == "b:2" && b.Status.SchedulerObservedAffinityName == "second"
	})
	w.capacity("a", 10)
	d := w.deployment("web", 0)
	w.edit(d, false, func() { d.Spec.Replicas = ptr.To[int32](3) })
	w.untilPlaced("web", "b:3")

	w.editPolicy(func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.Placement.ClusterTolerations = []corev1.Toleration{{Key: "unheard-of", Operator: corev1.TolerationOpExists}}
	})
	w.until("the new placement starts with the first term", "web", func(b *workv1alpha2.ResourceBinding) bool {
		return w.placed(b) == "a:3" && b.Status.SchedulerObservedAffinityName == "first"
	})
	w.capacity("a", 0)
	w.edit(d, false, func() { d.Spec.Replicas = ptr.To[int32](4) })
	w.until("the second term is used", "web", func(b *workv1alpha2.ResourceBinding) bool {
		return w.placed(b) == "b:4" && b.Status.SchedulerObservedAffinityName == "second"
	})

	w.capacity("a", 10)
	w.editBinding("web", func(b *workv1alpha2.ResourceBinding) {
		b.Spec.RescheduleTriggeredAt = &metav1.Time{Time: time.Now().Add(time.Second)}
	})
	w.until("it was rescheduled", "web", func(b *workv1alpha2.ResourceBinding) bool {
		return w.placed(b) == "a:4" && b.Status.SchedulerObservedAffinityName == "first"
	})
}

// S4, S8, S12, S23: an unschedulable workload reports why, keeps its clusters, and is placed when there is
// capacity.
func TestConditions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	w.policy(aggregated)
	w.create(w.deployment("web", 4))
	w.untilPlaced("web", "a:4")
	b := w.untilScheduled("web", names.ReasonSuccess)
	if b.Status.LastScheduledTime == nil || !meta.IsStatusConditionTrue(b.Status.Conditions, names.BindingScheduled) {
		t.Errorf("status = %+v", b.Status)
	}
	w.untilEvent("web", names.EventScheduleBindingSucceed)

	d := w.deployment("web", 0)
	w.edit(d, false, func() { d.Spec.Replicas = ptr.To[int32](40) })
	b = w.untilScheduled("web", names.ReasonUnschedulable)
	if w.placed(b) != "a:4" {
		t.Errorf("without capacity the workload is in %s", w.placed(b))
	}
	if event := w.untilEvent("web", names.EventScheduleBindingFailed); event.Message != meta.FindStatusCondition(b.Status.Conditions, names.BindingScheduled).Message {
		t.Errorf("event message %q, condition message %q", event.Message, meta.FindStatusCondition(b.Status.Conditions, names.BindingScheduled).Message)
	}
	w.capacity("a", 100)
	w.untilPlaced("web", "a:40")
	w.untilScheduled("web", names.ReasonSuccess)

	w.editPolicy(func(p *policyv1alpha1.PropagationPolicy) { p.Spec.Placement.ClusterAffinity = w.affinity("nowhere") })
	b = w.untilScheduled("web", names.ReasonNoClusterFit)
	if len(b.Spec.Clusters) != 0 {
		t.Errorf("without an eligible cluster the workload is in %s", w.placed(b))
	}
	w.join("nowhere")
	w.capacity("nowhere", 100)
	w.untilPlaced("web", "nowhere:40")

	w.editPolicy(func(p *policyv1alpha1.PropagationPolicy) { p.Spec.Placement.ClusterAffinity = w.affinity() })
	w.untilScheduled("web", names.ReasonSuccess)
	w.taint("a", corev1.Taint{Key: "full", Effect: corev1.TaintEffectNoSchedule})
	w.taint("nowhere", corev1.Taint{Key: "full", Effect: corev1.TaintEffectNoSchedule})
	w.create(w.deployment("kept-out", 1))
	w.untilScheduled("kept-out", names.ReasonNoClusterFit)
	if b := w.untilScheduled("web", names.ReasonSuccess); len(b.Spec.Clusters) == 0 {
		t.Error("a NoSchedule taint evicted a workload")
	}
	w.taint("a")
	w.untilPlaced("kept-out", "a:1")
}

// S12: workloads of a deleted cluster are placed elsewhere, and leave a cluster whose labels no longer match.
func TestTargetClusterGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	w.policy(aggregated, oneCluster)
	w.create(w.deployment("web", 2))
	b := w.until("it is placed", "web", func(b *workv1alpha2.ResourceBinding) bool { return len(b.Spec.Clusters) == 1 })
	first := b.Spec.Clusters[0].Name
	if err := w.client.Delete(t.Context(), &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: first}}); err != nil {
		t.Fatal(err)
	}
	w.until("it is placed elsewhere", "web", func(b *workv1alpha2.ResourceBinding) bool {
		return len(b.Spec.Clusters) == 1 && b.Spec.Clusters[0].Name != first && b.Spec.Clusters[0].Replicas == 2
	})

	p := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "everywhere"}}
	p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment", Name: "everywhere"}}
	p.Spec.Placement.ClusterAffinity = w.affinity()
	w.create(p, w.deployment("everywhere", 1))
	left := slices.DeleteFunc([]string{"a", "b", "c"}, func(name string) bool { return w.full(name) == first })
	w.untilPlaced("everywhere", left[0]+":1 "+left[1]+":1")
	w.editCluster(left[0], false, func(c *clusterv1alpha1.Cluster) { delete(c.Labels, worldLabel) })
	w.untilPlaced("everywhere", left[1]+":1")
}

// P9: suspended scheduling makes no decisions.
func TestSuspendedScheduling(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	w.policy(aggregated)
	w.create(w.deployment("web", 2))
	w.untilPlaced("web", "a:2")
	w.editBinding("web", func(b *workv1alpha2.ResourceBinding) {
		b.Spec.Suspension = &workv1alpha2.Suspension{Scheduling: ptr.To(true)}
	})
	d := w.deployment("web", 0)
	w.edit(d, false, func() { d.Spec.Replicas = ptr.To[int32](5) })
	w.until("the binding is updated", "web", func(b *workv1alpha2.ResourceBinding) bool { return b.Spec.Replicas == 5 })
	w.create(w.deployment("barrier", 1))
	w.untilPlaced("barrier", "a:1")
	w.untilPlaced("web", "a:2")
	w.editBinding("web", func(b *workv1alpha2.ResourceBinding) { b.Spec.Suspension = nil })
	w.untilPlaced("web", "a:5")
}

// P14: a binding of another scheduler is ignored.
func TestOtherScheduler(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	w.policy(func(p *policyv1alpha1.PropagationPolicy) { p.Spec.SchedulerName = "somebody-else" })
	w.create(w.deployment("web", 2))
	b := w.until("the binding exists", "web", func(*workv1alpha2.ResourceBinding) bool { return true })
	if len(b.Spec.Clusters) != 0 || meta.FindStatusCondition(b.Status.Conditions, names.BindingScheduled) != nil {
		t.Errorf("it was scheduled: %+v", b)
	}
}

// S19: the priority class of a policy sets the binding's priority, and a waiting workload is placed when there is
// capacity.
func TestPriority(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	w.capacity("a", 0)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: w.ns}, Value: 1000}
	w.create(class)
	w.policy(aggregated)
	p := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "important"}}
	p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment", Name: "important"}}
	p.Spec.Placement.ClusterAffinity = w.affinity()
	p.Spec.SchedulePriority = &policyv1alpha1.SchedulePriority{PriorityClassSource: policyv1alpha1.KubePriorityClass, PriorityClassName: class.Name}
	aggregated(p)
	w.create(p)
	for i := range 5 {
		w.create(w.deployment(fmt.Sprintf("minor-%d", i), 2))
		w.untilScheduled(fmt.Sprintf("minor-%d", i), names.ReasonUnschedulable)
	}
	w.create(w.deployment("important", 2))
	if b := w.untilScheduled("important", names.ReasonUnschedulable); b.Spec.SchedulePriority == nil || b.Spec.SchedulePriority.Priority != 1000 {
		t.Errorf("priority = %+v", b.Spec.SchedulePriority)
	}
	w.capacity("a", 2)
	w.untilPlaced("important", "a:2")
}

// S21: workloads of a group are placed together or apart.
func TestWorkloadAffinity(t *testing.T) {
	t.Parallel()
	labelled := func(key, value string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { d.Labels[key] = value }
	}
	w := newWorld(t, "a", "b", "c")
	w.policy(aggregated, oneCluster, func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.Placement.WorkloadAffinity = &policyv1alpha1.WorkloadAffinity{
			Affinity:     &policyv1alpha1.WorkloadAffinityTerm{GroupByLabelKey: "with"},
			AntiAffinity: &policyv1alpha1.WorkloadAntiAffinityTerm{GroupByLabelKey: "without"},
		}
	})
	for _, name := range []string{"x", "y", "z"} {
		w.create(w.deployment("apart-"+name, 1, labelled("without", "others")), w.deployment("together-"+name, 1, labelled("with", "others")))
	}
	apart, together := map[string]bool{}, map[string]bool{}
	for _, name := range []string{"x", "y", "z"} {
		b := w.until("it is placed", "apart-"+name, func(b *workv1alpha2.ResourceBinding) bool { return len(b.Spec.Clusters) == 1 })
		if b.Spec.WorkloadAffinityGroups == nil || b.Spec.WorkloadAffinityGroups.AntiAffinityGroup != "without=others" || b.Spec.WorkloadAffinityGroups.AffinityGroup != "" {
			t.Errorf("groups = %+v", b.Spec.WorkloadAffinityGroups)
		}
		apart[b.Spec.Clusters[0].Name] = true
		b = w.until("it is placed", "together-"+name, func(b *workv1alpha2.ResourceBinding) bool { return len(b.Spec.Clusters) == 1 })
		together[b.Spec.Clusters[0].Name] = true
	}
	if len(apart) != 3 || len(together) != 1 {
		t.Errorf("anti-affinity group in %v, affinity group in %v", apart, together)
	}
	w.create(w.deployment("one-too-many", 1, labelled("without", "others")))
	w.untilScheduled("one-too-many", names.ReasonNoClusterFit)
	if err := w.client.Delete(t.Context(), w.deployment("apart-x", 0)); err != nil {
		t.Fatal(err)
	}
	for cluster := range apart {
		if err := w.client.Get(t.Context(), keyOf(w.work(strings.TrimPrefix(cluster, w.ns+"-"), "apart-x")), w.work("", "")); err == nil {
			w.untilNoWork(strings.TrimPrefix(cluster, w.ns+"-"), "apart-x")
		}
	}
	w.until("the place is taken", "one-too-many", func(b *workv1alpha2.ResourceBinding) bool { return len(b.Spec.Clusters) == 1 })
}
