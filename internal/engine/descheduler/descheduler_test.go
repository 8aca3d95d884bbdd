package descheduler

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

func binding(preference policyv1alpha1.ReplicaDivisionPreference) *workv1alpha2.ResourceBinding {
	item := func(cluster string, ready int) workv1alpha2.AggregatedStatusItem {
		return workv1alpha2.AggregatedStatusItem{ClusterName: cluster, Status: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"readyReplicas":%d}`, ready)}}
	}
	b := &workv1alpha2.ResourceBinding{}
	b.Spec.Replicas = 9
	b.Spec.Placement = &policyv1alpha1.Placement{ReplicaScheduling: &policyv1alpha1.ReplicaSchedulingStrategy{
		ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDivided, ReplicaDivisionPreference: preference,
	}}
	b.Spec.Clusters = []workv1alpha2.TargetCluster{{Name: "a", Replicas: 3}, {Name: "b", Replicas: 3}, {Name: "c", Replicas: 3}}
	b.Status.AggregatedStatus = []workv1alpha2.AggregatedStatusItem{item("a", 3), item("b", 1)}
	return b
}

func TestShort(t *testing.T) {
	if got := short(binding(policyv1alpha1.ReplicaDivisionPreferenceAggregated)); fmt.Sprint(got) != "map[b:2]" {
		t.Errorf("short() = %v", got)
	}
	if got := short(binding(policyv1alpha1.ReplicaDivisionPreferenceWeighted)); len(got) != 0 {
		t.Errorf("short() = %v for a workload placed by static weights", got)
	}
}

func TestLower(t *testing.T) {
	before := binding(policyv1alpha1.ReplicaDivisionPreferenceAggregated)
	after, full := lower(before, map[string]int32{"b": 2, "c": 3})
	if got := fmt.Sprint(after.Spec.Clusters, full); got != "[{a 3 []} {b 1 []}] [b c]" {
		t.Errorf("after lower(): %s", got)
	}
	if len(before.Spec.Clusters) != 3 || before.Spec.Clusters[1].Replicas != 3 {
		t.Error("the original was changed")
	}
}

func TestUnschedulableFor(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	pod := func(status corev1.ConditionStatus, reason string, ago time.Duration) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(now.Add(-ago)),
		}}}}
	}
	gone := pod(corev1.ConditionFalse, corev1.PodReasonUnschedulable, time.Hour)
	gone.DeletionTimestamp = &metav1.Time{Time: now}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"unschedulable for long":     {pod(corev1.ConditionFalse, corev1.PodReasonUnschedulable, 5*time.Minute), true},
		"unschedulable for a moment": {pod(corev1.ConditionFalse, corev1.PodReasonUnschedulable, 4*time.Minute), false},
		"scheduled":                  {pod(corev1.ConditionTrue, "", time.Hour), false},
		"scheduling gate":            {pod(corev1.ConditionFalse, corev1.PodReasonSchedulingGated, time.Hour), false},
		"being deleted":              {gone, false},
		"no condition":               {&corev1.Pod{}, false},
	} {
		if got := unschedulableFor(test.pod, 5*time.Minute, now); got != test.want {
			t.Errorf("%s: unschedulableFor() = %t", name, got)
		}
	}
}
