// Package v1alpha1 holds CellControlPlane and CellControlPlaneTemplate, with which Cluster API makes cells. They are kinds of the cluster on which a
// federation is installed, not of the federation itself.
//
// +kubebuilder:object:generate=true
// +groupName=controlplane.cellplane.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of this package's kinds.
const GroupName = "controlplane.cellplane.io"

var (
	// GroupVersion is the group and version of this package's kinds.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	// SchemeBuilder collects the functions of AddToScheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers this package's kinds with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&CellControlPlane{},
		&CellControlPlaneList{},
		&CellControlPlaneTemplate{},
		&CellControlPlaneTemplateList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
