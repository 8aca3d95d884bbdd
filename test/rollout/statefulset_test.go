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
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

// At most one pod of a StatefulSet is unavailable in all members together, also if the engine is killed and the template changes again, and while replicas are added.
func TestStatefulSetRollout(t *testing.T) {
	kill := startEngine(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	w := &workload{t: t}
	w.create(ns)
	w.ns = ns.Name
	labels := map[string]string{"app": "db"}
	w.create(w.divided("StatefulSet"), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To(int32(6)), MinReadySeconds: minReadySeconds, Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: "db",
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(0)), Containers: []corev1.Container{{Name: "c", Image: image(1)}}},
		},
	}})
	edit := func(change func(*appsv1.StatefulSet)) {
		t.Helper()
		testenv.Eventually(t, "the template can be changed", func(ctx context.Context) (bool, error) {
			set := &appsv1.StatefulSet{}
			if err := cell.Get(ctx, ctrlclient.ObjectKey{Namespace: w.ns, Name: "db"}, set); err != nil {
				return false, err
			}
			change(set)
			err := cell.Update(ctx, set)
			return err == nil, err
		})
	}
	setImage := func(version int) {
		t.Helper()
		edit(func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = image(version) })
	}
	finished := func(version, replicas int) {
		t.Helper()
		testenv.Eventually(t, fmt.Sprintf("all pods have version %d, and the template says so", version), func(ctx context.Context) (bool, error) {
			set := &appsv1.StatefulSet{}
			if err := cell.Get(ctx, ctrlclient.ObjectKey{Namespace: w.ns, Name: "db"}, set); err != nil {
				return false, err
			}
			updated := 0
			for name := range members {
				updated += w.inMember(name)[image(version)]
			}
			s := &set.Status
			done := updated == replicas && s.ObservedGeneration == set.Generation && int(s.Replicas) == replicas && int(s.UpdatedReplicas) == replicas && int(s.AvailableReplicas) == replicas
			return done, fmt.Errorf("%d pods have it; %+v", updated, s)
		})
	}
	finished(1, 6)
	for name := range members {
		if pods := w.inMember(name); pods[image(1)] != 2 {
			t.Errorf("%s has these pods: %v", name, pods)
		}
	}

	pods := watchPods(t, w.ns, minReadySeconds*time.Second, 5, 6)
	setImage(2)
	finished(2, 6)
	pods.held("an update")

	setImage(3)
	w.begun(3)
	kill()
	setImage(4)
	startEngine(t)
	finished(4, 6)
	pods.held("an update during an update")

	pods.allow(5, 9)
	setImage(5)
	w.begun(5)
	edit(func(set *appsv1.StatefulSet) { set.Spec.Replicas = ptr.To(int32(9)) })
	finished(5, 9)
	pods.held("scaling out during an update")

	binding := &workv1alpha2.ResourceBinding{}
	if err := cell.Get(t.Context(), ctrlclient.ObjectKey{Namespace: w.ns, Name: "db-statefulset"}, binding); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(binding.Spec.Clusters, func(target workv1alpha2.TargetCluster) bool { return target.Replicas != 3 }) {
		t.Errorf("the clusters are %v", binding.Spec.Clusters)
	}
}
