package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FederatedResourceQuota limits what a namespace uses across all member clusters.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=federatedresourcequotas,scope=Namespaced,categories={karmada-io}
// +kubebuilder:printcolumn:name="OVERALL",type=string,JSONPath=`.status.overall`
// +kubebuilder:printcolumn:name="OVERALL_USED",type=string,JSONPath=`.status.overallUsed`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type FederatedResourceQuota struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec gives the bounds.
	// +required
	Spec FederatedResourceQuotaSpec `json:"spec"`

	// Status is the usage.
	// +optional
	Status FederatedResourceQuotaStatus `json:"status,omitzero"`
}

// FederatedResourceQuotaList is a list of FederatedResourceQuota.
//
// +kubebuilder:object:root=true
type FederatedResourceQuotaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []FederatedResourceQuota `json:"items"`
}

// FederatedResourceQuotaSpec gives the bounds, in all and per cluster.
type FederatedResourceQuotaSpec struct {
	// Overall is the bound over all clusters together.
	// +required
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:MinProperties=1
	Overall corev1.ResourceList `json:"overall"`

	// StaticAssignments gives clusters a fixed share, kept there as a ResourceQuota. Together they stay within
	// overall.
	// +optional
	// +listType=map
	// +listMapKey=clusterName
	// +kubebuilder:validation:MaxItems=1000
	StaticAssignments []StaticClusterAssignment `json:"staticAssignments,omitempty"`
}

// StaticClusterAssignment is the share of one cluster.
type StaticClusterAssignment struct {
	// ClusterName names the cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClusterName string `json:"clusterName"`

	// Hard is the share.
	// +required
	Hard corev1.ResourceList `json:"hard"`
}

// FederatedResourceQuotaStatus is the usage, in all and per cluster.
type FederatedResourceQuotaStatus struct {
	// Overall is the bound that was last enforced.
	// +optional
	Overall corev1.ResourceList `json:"overall,omitempty"`

	// OverallUsed is what all clusters use together.
	// +optional
	OverallUsed corev1.ResourceList `json:"overallUsed,omitempty"`

	// AggregatedStatus is what each cluster uses.
	// +optional
	AggregatedStatus []ClusterQuotaStatus `json:"aggregatedStatus,omitempty"`
}

// ClusterQuotaStatus is the state of the ResourceQuota in one cluster.
type ClusterQuotaStatus struct {
	corev1.ResourceQuotaStatus `json:",inline"`

	// ClusterName names the cluster.
	// +required
	ClusterName string `json:"clusterName"`
}
