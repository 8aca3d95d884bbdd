package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkloadMetrics is what the pods of a workload use in one cluster: the sums and counts from which an autoscaler
// computes what it would from the pods themselves. Those of several clusters can be added.
//
// +kubebuilder:object:root=true
type WorkloadMetrics struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Cluster is the cluster of the pods.
	Cluster string `json:"cluster"`

	// Workload is the workload, in the same namespace.
	Workload WorkloadReference `json:"workload"`

	// Timestamp is when the pods were counted.
	Timestamp metav1.Time `json:"timestamp"`

	// Pods counts the pods.
	Pods PodCounts `json:"pods"`

	// Metrics are CPU and memory, and those that autoscalers of the workload need.
	// +optional
	// +listType=atomic
	Metrics []MetricSums `json:"metrics,omitempty"`
}

// WorkloadMetricsList is a list of WorkloadMetrics.
//
// +kubebuilder:object:root=true
type WorkloadMetricsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WorkloadMetrics `json:"items"`
}

// WorkloadReference names a workload.
type WorkloadReference struct {
	// APIVersion of the workload.
	APIVersion string `json:"apiVersion"`

	// Kind of the workload.
	Kind string `json:"kind"`

	// Name of the workload.
	Name string `json:"name"`
}

// PodCounts counts the pods of a workload.
type PodCounts struct {
	// Total is the number of all pods, in any state.
	Total int32 `json:"total"`

	// Ready is the number of pods that run and are ready.
	Ready int32 `json:"ready"`
}

// MetricSums is what the pods come to for one metric. Pods that are deleted or have failed are in none of the groups.
type MetricSums struct {
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

	// Object is what a custom metric describes. Without it, a custom metric describes the pods.
	// +optional
	Object DescribedObject `json:"object,omitzero"`

	// External is set for an external metric.
	// +optional
	External bool `json:"external,omitempty"`

	// Value is that of a metric of an object, or the sum of the series of an external metric.
	// +optional
	Value *resource.Quantity `json:"value,omitempty"`

	// Failure says why the cluster has no values of the metric. Then nothing else is known of it.
	// +optional
	Failure string `json:"failure,omitempty"`

	// Timestamp is that of the oldest sample. It is missing if there is no sample.
	// +optional
	Timestamp *metav1.Time `json:"timestamp,omitempty"`

	// Window is the longest time that a sample covers.
	// +optional
	Window metav1.Duration `json:"window,omitzero"`

	// Measured are the pods that count with their sample.
	// +optional
	Measured MeasuredPods `json:"measured,omitzero"`

	// Unready are the pods whose sample, if any, does not count because they do not serve yet.
	// +optional
	Unready UnreadyPods `json:"unready,omitzero"`

	// Missing are the pods that run but have no sample, in groups with the same request.
	// +optional
	// +listType=atomic
	Missing []MissingPods `json:"missing,omitempty"`

	// PodsWithoutRequest is the number of pods, in any state, that do not request the resource. If there are any, there is
	// no utilization.
	// +optional
	PodsWithoutRequest int32 `json:"podsWithoutRequest,omitempty"`
}

// DescribedObject names an object that a metric describes.
type DescribedObject struct {
	// APIVersion of the object.
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the object.
	Kind string `json:"kind"`

	// Name of the object.
	Name string `json:"name"`
}

// MeasuredPods are pods that count with their sample.
type MeasuredPods struct {
	// Pods is their number.
	Pods int32 `json:"pods"`

	// Usage is the sum of their samples.
	Usage resource.Quantity `json:"usage"`

	// Requests is the sum of their requests, for a resource metric.
	// +optional
	Requests *resource.Quantity `json:"requests,omitempty"`
}

// UnreadyPods are pods whose sample does not count.
type UnreadyPods struct {
	// Pods is their number.
	Pods int32 `json:"pods"`

	// Requests is the sum of their requests, for a resource metric.
	// +optional
	Requests *resource.Quantity `json:"requests,omitempty"`
}

// MissingPods are pods without a sample that have the same request.
type MissingPods struct {
	// Pods is their number.
	Pods int32 `json:"pods"`

	// Request is that of each, for a resource metric.
	// +optional
	Request *resource.Quantity `json:"request,omitempty"`
}
