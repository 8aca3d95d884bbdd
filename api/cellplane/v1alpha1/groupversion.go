// Package v1alpha1 holds Cellplane's own kinds: the cells, how the slots are spread over them, what is protected from
// mistakes, the stages of updates, the API that users are served, parameters of admission policies, scheduling preferences
// and reservations.
//
// +kubebuilder:object:generate=true
// +groupName=cellplane.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of this package's kinds.
const GroupName = "cellplane.io"

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
		&AdmissionParameter{},
		&AdmissionParameterList{},
		&Cell{},
		&CellList{},
		&CellTopology{},
		&CellTopologyList{},
		&ClusterLedger{},
		&ClusterLedgerList{},
		&ClusterProfile{},
		&ClusterProfileList{},
		&ClusterRolloutPolicy{},
		&ClusterRolloutPolicyList{},
		&ProtectionPolicy{},
		&ProtectionPolicyList{},
		&RolloutPolicy{},
		&RolloutPolicyList{},
		&SchedulingProfile{},
		&SchedulingProfileList{},
		&ServedAPI{},
		&ServedAPIList{},
		&WorkloadGroup{},
		&WorkloadGroupList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
