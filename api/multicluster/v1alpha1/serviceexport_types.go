package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceExport offers the Service of its name and namespace to the other clusters.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=serviceexports,scope=Namespaced,shortName={svcex,svcexport}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ServiceExport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is passed on with the service.
	// +optional
	Spec ServiceExportSpec `json:"spec,omitzero"`

	// Status reports whether the service is exported.
	// +optional
	Status ServiceExportStatus `json:"status,omitzero"`
}

// ServiceExportList is a list of ServiceExport.
//
// +kubebuilder:object:root=true
type ServiceExportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ServiceExport `json:"items"`
}

// ServiceExportSpec says what is passed on with the service.
type ServiceExportSpec struct {
	// ExportedLabels become labels of the imported service.
	// +optional
	ExportedLabels map[string]string `json:"exportedLabels,omitempty"`

	// ExportedAnnotations become annotations of the imported service.
	// +optional
	ExportedAnnotations map[string]string `json:"exportedAnnotations,omitempty"`
}

// ServiceExportStatus reports whether the service is exported.
type ServiceExportStatus struct {
	// Conditions of the export.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
