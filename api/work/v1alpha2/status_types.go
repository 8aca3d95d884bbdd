package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ResourceBindingStatus is the progress of scheduling and applying.
type ResourceBindingStatus struct {
	// SchedulerObservedGeneration is the generation the scheduler last looked at.
	// +optional
	SchedulerObservedGeneration int64 `json:"schedulerObservedGeneration,omitempty"`

	// SchedulerObservedAffinityName is the affinity group in use.
	// +optional
	SchedulerObservedAffinityName string `json:"schedulerObservingAffinityName,omitempty"`

	// LastScheduledTime is when scheduling last succeeded.
	// +optional
	LastScheduledTime *metav1.Time `json:"lastScheduledTime,omitempty"`

	// Conditions are Scheduled and FullyApplied.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// AggregatedStatus is the state of the copy in each cluster.
	// +optional
	AggregatedStatus []AggregatedStatusItem `json:"aggregatedStatus,omitempty"`
}

// AggregatedStatusItem is the state of the copy in one cluster.
type AggregatedStatusItem struct {
	// ClusterName names the cluster.
	// +required
	ClusterName string `json:"clusterName"`

	// Status is what the interpreter reflects of the copy's status.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Status *runtime.RawExtension `json:"status,omitempty"`

	// Applied reports whether the copy is in place.
	// +optional
	Applied bool `json:"applied,omitempty"`

	// AppliedMessage is a human-readable message: the error if applying failed.
	// +optional
	AppliedMessage string `json:"appliedMessage,omitempty"`

	// Health of the copy.
	// +optional
	// +kubebuilder:validation:Enum=Healthy;Unhealthy;Unknown
	Health ResourceHealth `json:"health,omitempty"`
}

// ResourceHealth is the health of a copy, as the interpreter sees it.
type ResourceHealth string

// Health values of a copy.
const (
	ResourceHealthy   ResourceHealth = "Healthy"
	ResourceUnhealthy ResourceHealth = "Unhealthy"
	ResourceUnknown   ResourceHealth = "Unknown"
)
