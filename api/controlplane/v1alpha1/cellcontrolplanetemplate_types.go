package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CellControlPlaneTemplate is what a ClusterClass of Cluster API makes CellControlPlanes from.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:resource:path=cellcontrolplanetemplates,scope=Namespaced,categories={cluster-api,cellplane}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CellControlPlaneTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the template.
	// +required
	Spec CellControlPlaneTemplateSpec `json:"spec"`
}

// CellControlPlaneTemplateList is a list of CellControlPlaneTemplate.
//
// +kubebuilder:object:root=true
type CellControlPlaneTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CellControlPlaneTemplate `json:"items"`
}

// CellControlPlaneTemplateSpec is a template.
type CellControlPlaneTemplateSpec struct {
	// Template of CellControlPlanes.
	// +required
	Template CellControlPlaneTemplateResource `json:"template"`
}

// CellControlPlaneTemplateResource is what CellControlPlanes are made from. Cluster API adds version and replicas, which are those of the Cluster.
type CellControlPlaneTemplateResource struct {
	// ObjectMeta has more labels and annotations.
	// +optional
	ObjectMeta TemplateMeta `json:"metadata,omitzero"`

	// Spec is that of the CellControlPlanes.
	// +optional
	Spec CellSettings `json:"spec,omitzero"`
}

// TemplateMeta has labels and annotations.
//
// +kubebuilder:validation:MinProperties=1
type TemplateMeta struct {
	// Labels of the object.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the object.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}
