// Package v1alpha1 holds WorkloadMetrics, what the pods of a workload use in a cluster, and the reports by which they
// arrive. They are held in memory, so there is no CustomResourceDefinition.
//
// +kubebuilder:object:generate=true
// +kubebuilder:skip
// +groupName=metrics.cellplane.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of this package's kinds.
const GroupName = "metrics.cellplane.io"

var (
	// GroupVersion is the group and version of this package's kinds.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	// SchemeBuilder collects the functions of AddToScheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers this package's kinds with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &WorkloadMetrics{}, &WorkloadMetricsList{}, &MetricsReport{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
