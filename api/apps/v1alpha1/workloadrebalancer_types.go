package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkloadRebalancer reschedules workloads once, regardless of where they run now.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=workloadrebalancers,scope=Cluster,categories={karmada-io}
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type WorkloadRebalancer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec lists the workloads.
	// +required
	Spec WorkloadRebalancerSpec `json:"spec"`

	// Status is the result.
	// +optional
	Status WorkloadRebalancerStatus `json:"status,omitzero"`
}

// WorkloadRebalancerList is a list of WorkloadRebalancer.
//
// +kubebuilder:object:root=true
type WorkloadRebalancerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WorkloadRebalancer `json:"items"`
}

// WorkloadRebalancerSpec lists workloads to reschedule.
type WorkloadRebalancerSpec struct {
	// Workloads are the templates.
	// +required
	// +kubebuilder:validation:MinItems=1
	Workloads []ObjectReference `json:"workloads"`

	// TTLSecondsAfterFinished is how long the object is kept after all workloads are handled; unset means forever.
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// ObjectReference points at a template.
type ObjectReference struct {
	// APIVersion of the template.
	// +required
	APIVersion string `json:"apiVersion"`

	// Kind of the template.
	// +required
	Kind string `json:"kind"`

	// Name of the template.
	// +required
	Name string `json:"name"`

	// Namespace of the template; empty when it is cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// WorkloadRebalancerStatus is the result for all workloads.
type WorkloadRebalancerStatus struct {
	// ObservedWorkloads is the outcome of each workload.
	// +optional
	ObservedWorkloads []ObservedWorkload `json:"observedWorkloads,omitempty"`

	// ObservedGeneration is the generation that was handled.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// FinishTime is when the last workload was handled.
	// +optional
	FinishTime *metav1.Time `json:"finishTime,omitempty"`
}

// ObservedWorkload is the outcome of one workload.
type ObservedWorkload struct {
	// Workload is the template.
	// +required
	Workload ObjectReference `json:"workload"`

	// Result is Successful or Failed.
	// +optional
	Result RebalanceResult `json:"result,omitempty"`

	// Reason says why it failed.
	// +optional
	Reason RebalanceFailedReason `json:"reason,omitempty"`
}

// RebalanceResult is the outcome of a request.
type RebalanceResult string

// The outcomes of a request.
const (
	RebalanceSuccessful RebalanceResult = "Successful"
	RebalanceFailed     RebalanceResult = "Failed"
)

// RebalanceFailedReason says why a request failed.
type RebalanceFailedReason string

// ReasonReferencedBindingNotFound means that the workload has no binding.
const ReasonReferencedBindingNotFound RebalanceFailedReason = "ReferencedBindingNotFound"
