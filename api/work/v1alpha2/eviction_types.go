package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// GracefulEvictionTask is the eviction of a template from a cluster.
type GracefulEvictionTask struct {
	// FromCluster names the cluster.
	// +required
	FromCluster string `json:"fromCluster"`

	// PurgeMode says when the old copy is deleted.
	// +optional
	// +kubebuilder:validation:Enum=Directly;Gracefully;Never
	PurgeMode policyv1alpha1.PurgeMode `json:"purgeMode,omitempty"`

	// Replicas that leave.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// Reason is a machine-readable CamelCase word.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`
	Reason string `json:"reason"`

	// Message is a human-readable message.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// Producer is the controller that decided.
	// +required
	Producer string `json:"producer"`

	// GracePeriodSeconds is how long the old copy is kept while the new one is unhealthy. It excludes
	// suppressDeletion.
	// +optional
	GracePeriodSeconds *int32 `json:"gracePeriodSeconds,omitempty"`

	// SuppressDeletion keeps the old copy until somebody sets it to false.
	// +optional
	SuppressDeletion *bool `json:"suppressDeletion,omitempty"`

	// PreservedLabelState are labels, made from the old copy's status, for the new copy.
	// +optional
	PreservedLabelState map[string]string `json:"preservedLabelState,omitempty"`

	// CreationTimestamp is when the task was added.
	// +optional
	CreationTimestamp *metav1.Time `json:"creationTimestamp,omitempty"`

	// ClustersBeforeFailover are the clusters that held the template before.
	// +optional
	ClustersBeforeFailover []string `json:"clustersBeforeFailover,omitempty"`
}
