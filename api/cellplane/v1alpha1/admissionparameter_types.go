package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AdmissionParameter has values for admission policies that users create: the paramKind of a ValidatingAdmissionPolicy or
// MutatingAdmissionPolicy. Expressions read them as `params.data`. Every cell has a copy.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=admissionparameters,scope=Cluster,categories={cellplane}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AdmissionParameter struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Data are the values.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	Data map[string]ParameterValue `json:"data,omitempty"`
}

// ParameterValue is a value of an AdmissionParameter.
//
// +kubebuilder:validation:MaxLength=4096
type ParameterValue string

// AdmissionParameterList is a list of AdmissionParameter.
//
// +kubebuilder:object:root=true
type AdmissionParameterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AdmissionParameter `json:"items"`
}
