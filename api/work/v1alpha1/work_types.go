package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Work keeps manifests applied in one member cluster, the one its namespace stands for.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=works,scope=Namespaced,shortName=wk,categories={karmada-io}
// +kubebuilder:printcolumn:name="Workload-Kind",type=string,JSONPath=`.spec.workload.manifests[*].kind`
// +kubebuilder:printcolumn:name="Workload-Name",type=string,JSONPath=`.spec.workload.manifests[*].metadata.name`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Entry",type=string,priority=1,description="EntryOpen or EntryOverdue if the federation does not write to the object in a cluster",JSONPath=`.status.conditions[?(@.type=="EntryOpen")].reason`
type Work struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec holds the manifests.
	// +required
	Spec WorkSpec `json:"spec"`

	// Status is the result.
	// +optional
	Status WorkStatus `json:"status,omitzero"`
}

// WorkList is a list of Work.
//
// +kubebuilder:object:root=true
type WorkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Work `json:"items"`
}

// WorkSpec holds the manifests and how they are handled.
type WorkSpec struct {
	// Workload holds the manifests.
	// +optional
	Workload WorkloadTemplate `json:"workload,omitzero"`

	// SuspendDispatching keeps changes from the cluster; deletions still go through.
	// +optional
	SuspendDispatching *bool `json:"suspendDispatching,omitempty"`

	// PreserveResourcesOnDeletion leaves the objects in the cluster when the Work is deleted.
	// +optional
	PreserveResourcesOnDeletion *bool `json:"preserveResourcesOnDeletion,omitempty"`
}

// WorkloadTemplate is a list of manifests.
type WorkloadTemplate struct {
	// Manifests are whole objects.
	// +optional
	Manifests []Manifest `json:"manifests,omitempty"`
}

// Manifest is a whole object of any kind.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Manifest struct {
	runtime.RawExtension `json:",inline"`
}

// WorkStatus is the result of applying the manifests.
type WorkStatus struct {
	// Conditions are Applied, Progressing, Available, Degraded and Dispatching.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ManifestStatuses is the state of each manifest's object.
	// +optional
	ManifestStatuses []ManifestStatus `json:"manifestStatuses,omitempty"`
}

// ManifestStatus is the state of one manifest's object in the cluster.
type ManifestStatus struct {
	// Identifier says which manifest.
	// +required
	Identifier ResourceIdentifier `json:"identifier"`

	// Status is what the interpreter reflects of the object's status.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Status *runtime.RawExtension `json:"status,omitempty"`

	// Health of the object.
	// +optional
	// +kubebuilder:validation:Enum=Healthy;Unhealthy;Unknown
	Health ResourceHealth `json:"health,omitempty"`
}

// ResourceIdentifier points at a manifest and its object.
type ResourceIdentifier struct {
	// Ordinal is the manifest's position.
	// +required
	Ordinal int `json:"ordinal"`

	// Group of the object.
	// +optional
	Group string `json:"group,omitempty"`

	// Version of the object.
	// +required
	Version string `json:"version"`

	// Kind of the object.
	// +required
	Kind string `json:"kind"`

	// Resource of the object.
	// +required
	Resource string `json:"resource"`

	// Namespace of the object; empty when it is cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Name of the object.
	// +required
	Name string `json:"name"`
}

// ResourceHealth is the health of an object, as the interpreter sees it.
type ResourceHealth string

// Health values of an object.
const (
	ResourceHealthy   ResourceHealth = "Healthy"
	ResourceUnhealthy ResourceHealth = "Unhealthy"
	ResourceUnknown   ResourceHealth = "Unknown"
)
