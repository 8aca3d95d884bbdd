package workloadrebalancer

import (
	"fmt"
	"testing"

	appsv1alpha1 "github.com/cellplane/cellplane/api/apps/v1alpha1"
)

// TestObserved lists workloads in the order of their references. Workloads that left the spec stay if they were triggered.
func TestObserved(t *testing.T) {
	of := func(kind, name string) appsv1alpha1.ObjectReference {
		return appsv1alpha1.ObjectReference{APIVersion: "apps/v1", Kind: kind, Namespace: "ns", Name: name}
	}
	rebalancer := &appsv1alpha1.WorkloadRebalancer{}
	rebalancer.Spec.Workloads = []appsv1alpha1.ObjectReference{of("StatefulSet", "a"), of("Deployment", "z"), of("Deployment", "b"), of("Deployment", "z")}
	rebalancer.Status.ObservedWorkloads = []appsv1alpha1.ObservedWorkload{
		{Workload: of("Deployment", "z"), Result: appsv1alpha1.RebalanceSuccessful},
		{Workload: of("Deployment", "left"), Result: appsv1alpha1.RebalanceSuccessful},
		{Workload: of("Deployment", "failed"), Result: appsv1alpha1.RebalanceFailed, Reason: appsv1alpha1.ReasonReferencedBindingNotFound},
	}
	var got []string
	for _, observed := range observedOf(rebalancer) {
		got = append(got, fmt.Sprintf("%s/%s %s", observed.Workload.Kind, observed.Workload.Name, observed.Result))
	}
	if want := "[Deployment/b  Deployment/left Successful Deployment/z Successful StatefulSet/a ]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
