package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Remedy requests actions on clusters with failing conditions.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=remedies,scope=Cluster,categories={karmada-io}
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type Remedy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which actions, when.
	// +required
	Spec RemedySpec `json:"spec"`
}

// RemedyList is a list of Remedy.
//
// +kubebuilder:object:root=true
type RemedyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Remedy `json:"items"`
}

// RemedySpec says which actions are asked for, when.
type RemedySpec struct {
	// ClusterAffinity selects the clusters; none selects all.
	// +optional
	ClusterAffinity *ClusterAffinity `json:"clusterAffinity,omitempty"`

	// DecisionMatches call for the actions when any of them matches; without any the actions are asked for at once.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	DecisionMatches []DecisionMatch `json:"decisionMatches,omitempty"`

	// Actions are what is asked for.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Actions []RemedyAction `json:"actions,omitempty"`
}

// ClusterAffinity selects clusters by name.
type ClusterAffinity struct {
	// ClusterNames are the clusters.
	// +optional
	ClusterNames []string `json:"clusterNames,omitempty"`
}

// DecisionMatch is a reason to act.
type DecisionMatch struct {
	// ClusterConditionMatch looks at a condition of the cluster.
	// +optional
	ClusterConditionMatch *ClusterConditionRequirement `json:"clusterConditionMatch,omitempty"`
}

// ConditionType is the type of a cluster's condition.
type ConditionType string

// ServiceDomainNameResolutionReady reports whether cluster DNS works.
const ServiceDomainNameResolutionReady ConditionType = "ServiceDomainNameResolutionReady"

// ClusterConditionOperator compares a condition's status with a value.
type ClusterConditionOperator string

// The operators on a condition's status.
const (
	ClusterConditionEqual    ClusterConditionOperator = "Equal"
	ClusterConditionNotEqual ClusterConditionOperator = "NotEqual"
)

// ClusterConditionRequirement is a requirement on one condition of a cluster.
type ClusterConditionRequirement struct {
	// ConditionType names the condition.
	// +required
	ConditionType ConditionType `json:"conditionType"`

	// Operator compares the condition's status with conditionStatus.
	// +required
	// +kubebuilder:validation:Enum=Equal;NotEqual
	Operator ClusterConditionOperator `json:"operator"`

	// ConditionStatus is the status compared with.
	// +required
	ConditionStatus string `json:"conditionStatus"`
}

// RemedyAction is something that can be asked for.
type RemedyAction string

// TrafficControl asks to keep traffic away from the cluster.
const TrafficControl RemedyAction = "TrafficControl"
