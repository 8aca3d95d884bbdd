package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MetricsReport is how the agent of a cluster pushes WorkloadMetrics. It is named after the cluster, created and never
// stored: the answer is the report with its status.
//
// Reports of a session are numbered, and each is a change to what was reported before. One in which nothing changed
// renews everything.
//
// +kubebuilder:object:root=true
type MetricsReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the agent reports.
	Spec MetricsReportSpec `json:"spec"`

	// Status is the answer.
	// +optional
	Status MetricsReportStatus `json:"status,omitzero"`
}

// MetricsReportSpec is a part of what an agent reports.
type MetricsReportSpec struct {
	// Session names a run of the agent.
	Session string `json:"session"`

	// Sequence is the number of the report in its session, from 1.
	Sequence int64 `json:"sequence"`

	// Begin is set in the first of the reports with everything. It may belong to any session.
	// +optional
	Begin bool `json:"begin,omitempty"`

	// End is set in the last of the reports with everything: what they did not have is removed.
	// +optional
	End bool `json:"end,omitempty"`

	// Items are the workloads that are new or have changed. Namespace, UID and creation time are those of the workload in
	// the cluster. Name and cluster may be left out.
	// +optional
	// +listType=atomic
	Items []WorkloadMetrics `json:"items,omitempty"`

	// Removed are the workloads that are gone.
	// +optional
	// +listType=atomic
	Removed []NamespacedWorkload `json:"removed,omitempty"`

	// Wanted is the version of the wanted metrics that the agent knows.
	// +optional
	Wanted string `json:"wanted,omitempty"`
}

// NamespacedWorkload names a workload in any namespace.
type NamespacedWorkload struct {
	// Namespace of the workload.
	Namespace string `json:"namespace"`

	WorkloadReference `json:",inline"`
}

// MetricsReportStatus is the answer to a report.
type MetricsReportStatus struct {
	// Resend asks the agent to report everything: the report does not continue what is known of the cluster.
	// +optional
	Resend bool `json:"resend,omitempty"`

	// Wanted is set if other metrics are wanted than those that the agent knows.
	// +optional
	Wanted *WantedMetrics `json:"wanted,omitempty"`
}

// WantedMetrics are the metrics that autoscalers need. Workloads that are not listed have no autoscaler.
type WantedMetrics struct {
	// Version changes with the rest.
	Version string `json:"version"`

	// Workloads are those with an autoscaler.
	// +optional
	// +listType=atomic
	Workloads []WantedWorkload `json:"workloads,omitempty"`
}

// WantedWorkload is a workload with an autoscaler.
type WantedWorkload struct {
	NamespacedWorkload `json:",inline"`

	// Metrics are those that its autoscalers need.
	// +optional
	// +listType=atomic
	Metrics []WantedMetric `json:"metrics,omitempty"`
}

// WantedMetric names a metric: of pods, of an object, or an external one.
type WantedMetric struct {
	// Resource is what is used, for a resource metric.
	// +optional
	Resource corev1.ResourceName `json:"resource,omitempty"`

	// Container is the one container that counts, for a resource metric. Empty means all.
	// +optional
	Container string `json:"container,omitempty"`

	// Name is that of a custom or external metric.
	// +optional
	Name string `json:"name,omitempty"`

	// Selector selects among the series of a custom or external metric.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Object is what a custom metric describes, in the namespace of the workload. Without it, a custom metric describes the
	// pods.
	// +optional
	Object DescribedObject `json:"object,omitzero"`

	// External is set for an external metric.
	// +optional
	External bool `json:"external,omitempty"`
}
