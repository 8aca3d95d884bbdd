package rollout_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

// statefulSet is a StatefulSet whose replicas are divided among the members.
type statefulSet struct{ workload }

func newStatefulSet(t *testing.T, replicas int32, strategy appsv1.StatefulSetUpdateStrategy) *statefulSet {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	s := &statefulSet{workload{t: t}}
	s.create(ns)
	s.ns = ns.Name
	labels := map[string]string{"app": "db"}
	s.create(s.divided("StatefulSet"), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, MinReadySeconds: minReadySeconds, Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: "db", UpdateStrategy: strategy,
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(0)), Containers: []corev1.Container{{Name: "c", Image: image(1)}}},
		},
	}})
	return s
}

// edit changes the template.
func (s *statefulSet) edit(change func(*appsv1.StatefulSet)) {
	s.t.Helper()
	testenv.Eventually(s.t, "the template can be changed", func(ctx context.Context) (bool, error) {
		set := &appsv1.StatefulSet{}
		if err := cell.Get(ctx, ctrlclient.ObjectKey{Namespace: s.ns, Name: "db"}, set); err != nil {
			return false, err
		}
		change(set)
		err := cell.Update(ctx, set)
		return err == nil, err
	})
}

func (s *statefulSet) setImage(version int) {
	s.t.Helper()
	s.edit(func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = image(version) })
}

// finished waits until so many of the replicas have a version, all are available, and the template says so.
func (s *statefulSet) finished(version, updated, replicas int) {
	s.t.Helper()
	testenv.Eventually(s.t, fmt.Sprintf("%d of %d pods have version %d, and the template says so", updated, replicas, version), func(ctx context.Context) (bool, error) {
		set := &appsv1.StatefulSet{}
		if err := cell.Get(ctx, ctrlclient.ObjectKey{Namespace: s.ns, Name: "db"}, set); err != nil {
			return false, err
		}
		have := 0
		for name := range members {
			have += s.inMember(name)[image(version)]
		}
		now := &set.Status
		done := have == updated && now.ObservedGeneration == set.Generation && int(now.Replicas) == replicas && int(now.UpdatedReplicas) == updated && int(now.AvailableReplicas) == replicas
		return done, fmt.Errorf("%d pods have it; %+v", have, now)
	})
}

// At most one pod of a StatefulSet is unavailable in all members together, also if the engine is killed and the template changes again, and while replicas are added.
func TestStatefulSetRollout(t *testing.T) {
	kill := startEngine(t)
	w := newStatefulSet(t, 6, appsv1.StatefulSetUpdateStrategy{})
	w.finished(1, 6, 6)
	for name := range members {
		if pods := w.inMember(name); pods[image(1)] != 2 {
			t.Errorf("%s has these pods: %v", name, pods)
		}
	}

	pods := watchPods(t, w.ns, minReadySeconds*time.Second, 5, 6)
	w.setImage(2)
	w.finished(2, 6, 6)
	pods.held("an update")

	w.setImage(3)
	w.begun(3)
	kill()
	w.setImage(4)
	startEngine(t)
	w.finished(4, 6, 6)
	pods.held("an update during an update")

	pods.allow(5, 9)
	w.setImage(5)
	w.begun(5)
	w.edit(func(set *appsv1.StatefulSet) { set.Spec.Replicas = ptr.To(int32(9)) })
	w.finished(5, 9, 9)
	pods.held("scaling out during an update")

	binding := &workv1alpha2.ResourceBinding{}
	if err := cell.Get(t.Context(), ctrlclient.ObjectKey{Namespace: w.ns, Name: "db-statefulset"}, binding); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(binding.Spec.Clusters, func(target workv1alpha2.TargetCluster) bool { return target.Replicas != 3 }) {
		t.Errorf("the clusters are %v", binding.Spec.Clusters)
	}
}

// The partition and maxUnavailable of a StatefulSet are for all members together: ordinals count on from one member to the next.
func TestStatefulSetPartition(t *testing.T) {
	startEngine(t)
	s := newStatefulSet(t, 9, appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{
		Partition: ptr.To(int32(4)), MaxUnavailable: ptr.To(intstr.FromString("25%")),
	}})
	setPartition := func(partition int32) {
		t.Helper()
		s.edit(func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = &partition })
	}
	s.finished(1, 9, 9)
	pods := watchPods(t, s.ns, minReadySeconds*time.Second, 7, 9)

	pods.allowUpdated(image(2), 5)
	s.setImage(2)
	s.finished(2, 5, 9)
	pods.held("an update with a partition")
	for name, kept := range map[string]int{"member1": 3, "member2": 1, "member3": 0} {
		set := &appsv1.StatefulSet{}
		if err := members[name].Get(t.Context(), ctrlclient.ObjectKey{Namespace: s.ns, Name: "db"}, set); err != nil {
			t.Fatal(err)
		}
		if has := s.inMember(name); has[image(1)] != kept || has[image(2)] != 3-kept || int(*set.Spec.UpdateStrategy.RollingUpdate.Partition) != kept {
			t.Errorf("%s has %v by %+v, and %d pods should be kept", name, has, set.Spec.UpdateStrategy.RollingUpdate, kept)
		}
	}

	pods.allowUpdated(image(2), 8)
	setPartition(1)
	s.finished(2, 8, 9)
	pods.held("a lower partition")

	// Back to version 1: a pod has it already, below the partition. A status alone does not tell that from one that is done.
	pods.allowUpdated(image(1), 7)
	setPartition(3)
	s.setImage(1)
	s.finished(1, 7, 9)
	pods.held("undo with a partition")
}
