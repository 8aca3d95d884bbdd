package engine_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

func autoscaler(ns, name string) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		MaxReplicas: 9, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
	}}
}

func evenly(spec *policyv1alpha1.PropagationSpec) {
	spec.Placement.ReplicaScheduling = &policyv1alpha1.ReplicaSchedulingStrategy{
		ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDivided, ReplicaDivisionPreference: policyv1alpha1.ReplicaDivisionPreferenceWeighted,
	}
}

// P30: a propagated autoscaler owns the replicas of its target in the members, and the template follows. The template owns them again when the
// autoscaler is gone.
func TestAutoscaledReplicas(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "p", []string{"Deployment"}, evenly), deployment(ns, "web", 4), deployment(ns, "own", 2))
	hpas := policy(ns, "hpas", nil)
	hpas.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"}}
	replicas := func(n int32) func(*appsv1.Deployment) bool {
		return func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == n }
	}
	for _, member := range members {
		until(t, "the replicas are divided", member, deploymentRef(ns, "web"), replicas(2))
	}
	marked := func(d *appsv1.Deployment) bool {
		return d.Labels[names.RetainReplicasLabel] == "true" && d.Annotations[names.AutoscaledByAnnotation] == "web"
	}
	create(t, autoscaler(ns, "web"))
	create(t, hpas) // an autoscaler that is not propagated has no say
	until(t, "the target is marked", cell, deploymentRef(ns, "web"), marked)
	for name, member := range members {
		until(t, "the mark is in "+name, member, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool { return d.Labels[names.RetainReplicasLabel] == "true" })
	}

	edit(t, members["member1"], deploymentRef(ns, "web"), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(5)) })
	until(t, "the template follows", cell, deploymentRef(ns, "web"), replicas(7))
	until(t, "a change of the replicas by a user is undone", cell, edited(t, ns, "web", 3), replicas(7))
	for name, n := range map[string]int32{"member1": 5, "member2": 2} {
		if d := until(t, "it is there", members[name], deploymentRef(ns, "web"), anything[*appsv1.Deployment]); *d.Spec.Replicas != n {
			t.Errorf("the replicas in %s are %d, not %d", name, *d.Spec.Replicas, n)
		}
	}

	// Undoing an update replaces all annotations of a Deployment. The mark is still the engine's.
	edit(t, cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) { delete(d.Annotations, names.AutoscaledByAnnotation) })

	if err := cell.Delete(t.Context(), autoscaler(ns, "web")); err != nil {
		t.Fatal(err)
	}
	until(t, "the mark is gone", cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
		return d.Labels[names.RetainReplicasLabel] == "" && d.Labels[names.AutoscaledLabel] == "" && d.Annotations[names.AutoscaledByAnnotation] == ""
	})
	edit(t, cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(2)) })
	for _, member := range members {
		until(t, "the template owns the replicas again", member, deploymentRef(ns, "web"), replicas(1))
	}
	if own := until(t, "it is there", cell, deploymentRef(ns, "own"), anything[*appsv1.Deployment]); own.Labels[names.RetainReplicasLabel] != "" || *own.Spec.Replicas != 2 {
		t.Errorf("a Deployment without autoscaler has the labels %v and %d replicas", own.Labels, *own.Spec.Replicas)
	}
}

// edited scales a template and returns a reference to it.
func edited(t *testing.T, ns, name string, replicas int32) *appsv1.Deployment {
	t.Helper()
	edit(t, cell, deploymentRef(ns, name), func(d *appsv1.Deployment) { d.Spec.Replicas = &replicas })
	return deploymentRef(ns, name)
}
