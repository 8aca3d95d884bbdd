package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterTaintPolicy adds taints to clusters and removes them as their conditions change. Taints stay when the
// policy is deleted.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clustertaintpolicies,scope=Cluster,categories={karmada-io}
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterTaintPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which taints, when.
	// +required
	Spec ClusterTaintPolicySpec `json:"spec"`
}

// ClusterTaintPolicyList is a list of ClusterTaintPolicy.
//
// +kubebuilder:object:root=true
type ClusterTaintPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterTaintPolicy `json:"items"`
}

// ClusterTaintPolicySpec says which taints come and go under which conditions.
type ClusterTaintPolicySpec struct {
	// TargetClusters selects the clusters; none selects all.
	// +optional
	TargetClusters *ClusterAffinity `json:"targetClusters,omitempty"`

	// AddOnConditions must all match for the taints to be added; an empty list never matches.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	AddOnConditions []MatchCondition `json:"addOnConditions,omitempty"`

	// RemoveOnConditions must all match for the taints to be removed; an empty list never matches.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	RemoveOnConditions []MatchCondition `json:"removeOnConditions,omitempty"`

	// Taints are what is added or removed.
	// +required
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Taints []Taint `json:"taints"`
}

// MatchConditionOperator compares a condition's status with a list.
type MatchConditionOperator string

// The operators on a condition's status. Neither matches a condition that is absent.
const (
	MatchConditionOpIn    MatchConditionOperator = "In"
	MatchConditionOpNotIn MatchConditionOperator = "NotIn"
)

// MatchCondition is a requirement on one condition of a cluster.
type MatchCondition struct {
	// ConditionType names the condition.
	// +required
	// +kubebuilder:validation:MaxLength=316
	ConditionType string `json:"conditionType"`

	// Operator compares the condition's status with statusValues.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn
	Operator MatchConditionOperator `json:"operator"`

	// StatusValues are statuses: True, False or Unknown.
	// +required
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=True;False;Unknown
	StatusValues []metav1.ConditionStatus `json:"statusValues"`
}

// Taint is a taint without a time.
type Taint struct {
	// Key of the taint.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// Effect on workloads that do not tolerate the taint.
	// +required
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`

	// Value of the taint.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`
}
