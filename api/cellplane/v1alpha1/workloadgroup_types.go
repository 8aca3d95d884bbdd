package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WorkloadGroup records where the workloads of an affinity group are, over all cells. It lives on the hub. Engines write it by
// compare-and-swap before they write a decision, so that no two cells decide against each other. Nobody else has to write it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=workloadgroups,scope=Cluster,categories={cellplane}
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.namespace`
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.spec.group`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type WorkloadGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the group and its workloads.
	// +required
	Spec WorkloadGroupSpec `json:"spec"`
}

// WorkloadGroupSpec is a group and its workloads.
type WorkloadGroupSpec struct {
	// Namespace of the workloads.
	// +required
	// +kubebuilder:validation:MinLength=1
	Namespace string `json:"namespace"`

	// Group is the label that the workloads have in common, written as "key=value".
	// +required
	// +kubebuilder:validation:MinLength=1
	Group string `json:"group"`

	// Workloads are those that have clusters.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	Workloads []GroupedWorkload `json:"workloads,omitempty"`
}

// GroupedWorkload is a workload of a group.
type GroupedWorkload struct {
	// Cell whose engine has placed the workload.
	// +required
	Cell string `json:"cell"`

	// Binding of the workload.
	// +required
	Binding string `json:"binding"`

	// Clusters of the workload.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Clusters []string `json:"clusters,omitempty"`

	// Together is whether the workload belongs to the group by its affinity.
	// +optional
	Together bool `json:"together,omitempty"`

	// Apart is whether the workload belongs to the group by its anti-affinity.
	// +optional
	Apart bool `json:"apart,omitempty"`
}

// WorkloadGroupList is a list of groups.
//
// +kubebuilder:object:root=true
type WorkloadGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WorkloadGroup `json:"items"`
}
