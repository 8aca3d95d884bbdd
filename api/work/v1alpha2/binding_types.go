package v1alpha2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// ResourceBinding holds the clusters chosen for a namespaced template.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=resourcebindings,scope=Namespaced,shortName=rb,categories={karmada-io}
// +kubebuilder:printcolumn:name="Scheduled",type=string,JSONPath=`.status.conditions[?(@.type=="Scheduled")].status`
// +kubebuilder:printcolumn:name="FullyApplied",type=string,JSONPath=`.status.conditions[?(@.type=="FullyApplied")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Entry",type=string,priority=1,description="EntryOpen or EntryOverdue if the federation does not write to the object in a cluster",JSONPath=`.status.conditions[?(@.type=="EntryOpen")].reason`
type ResourceBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec holds the template's needs and the clusters chosen.
	// +required
	Spec ResourceBindingSpec `json:"spec"`

	// Status is the progress of scheduling and applying.
	// +optional
	Status ResourceBindingStatus `json:"status,omitzero"`
}

// ResourceBindingList is a list of ResourceBinding.
//
// +kubebuilder:object:root=true
type ResourceBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ResourceBinding `json:"items"`
}

// ClusterResourceBinding holds the clusters chosen for a cluster-scoped template.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=clusterresourcebindings,scope=Cluster,shortName=crb,categories={karmada-io}
// +kubebuilder:printcolumn:name="Scheduled",type=string,JSONPath=`.status.conditions[?(@.type=="Scheduled")].status`
// +kubebuilder:printcolumn:name="FullyApplied",type=string,JSONPath=`.status.conditions[?(@.type=="FullyApplied")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Entry",type=string,priority=1,description="EntryOpen or EntryOverdue if the federation does not write to the object in a cluster",JSONPath=`.status.conditions[?(@.type=="EntryOpen")].reason`
type ClusterResourceBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec holds the template's needs and the clusters chosen.
	// +required
	Spec ResourceBindingSpec `json:"spec"`

	// Status is the progress of scheduling and applying.
	// +optional
	Status ResourceBindingStatus `json:"status,omitzero"`
}

// ClusterResourceBindingList is a list of ClusterResourceBinding.
//
// +kubebuilder:object:root=true
type ClusterResourceBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterResourceBinding `json:"items"`
}

// ResourceBindingSpec holds what the scheduler needs to know of a template, and what it decided.
type ResourceBindingSpec struct {
	// Resource is the template.
	// +required
	Resource ObjectReference `json:"resource"`

	// PropagateDeps also propagates what the template refers to.
	// +optional
	PropagateDeps bool `json:"propagateDeps,omitempty"`

	// ReplicaRequirements is what one replica needs.
	// +optional
	ReplicaRequirements *ReplicaRequirements `json:"replicaRequirements,omitempty"`

	// Replicas is how many replicas the template asks for.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// Components are the parts of a template that has several pod templates.
	// +optional
	Components []Component `json:"components,omitempty"`

	// Clusters are the clusters chosen, each with its share.
	// +optional
	Clusters []TargetCluster `json:"clusters,omitempty"`

	// Placement is the policy's placement.
	// +optional
	Placement *policyv1alpha1.Placement `json:"placement,omitempty"`

	// GracefulEvictionTasks are the clusters that the template is leaving; the old copies go when their task is done.
	// +optional
	GracefulEvictionTasks []GracefulEvictionTask `json:"gracefulEvictionTasks,omitempty"`

	// RequiredBy are the bindings whose templates refer to this one.
	// +optional
	RequiredBy []BindingSnapshot `json:"requiredBy,omitempty"`

	// SchedulerName is the scheduler in charge.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`

	// Failover is the policy's failover behaviour.
	// +optional
	Failover *policyv1alpha1.FailoverBehavior `json:"failover,omitempty"`

	// ConflictResolution says what happens if a cluster already has an object of that name that the federation does
	// not manage.
	// +optional
	// +kubebuilder:validation:Enum=Abort;Overwrite
	// +kubebuilder:default=Abort
	ConflictResolution policyv1alpha1.ConflictResolution `json:"conflictResolution,omitempty"`

	// RescheduleTriggeredAt requests a fresh scheduling if it is later than the last one.
	// +optional
	RescheduleTriggeredAt *metav1.Time `json:"rescheduleTriggeredAt,omitempty"`

	// Suspension pauses dispatching or scheduling.
	// +optional
	Suspension *Suspension `json:"suspension,omitempty"`

	// PreserveResourcesOnDeletion leaves the copies in the clusters when the template is deleted.
	// +optional
	PreserveResourcesOnDeletion *bool `json:"preserveResourcesOnDeletion,omitempty"`

	// SchedulePriority orders the binding in the scheduler's queue.
	// +optional
	SchedulePriority *SchedulePriority `json:"schedulePriority,omitempty"`

	// WorkloadAffinityGroups are the groups the template belongs to.
	// +optional
	WorkloadAffinityGroups *WorkloadAffinityGroups `json:"workloadAffinityGroups,omitempty"`
}

// ObjectReference points at a template.
type ObjectReference struct {
	// APIVersion of the template.
	// +required
	APIVersion string `json:"apiVersion"`

	// Kind of the template.
	// +required
	Kind string `json:"kind"`

	// Namespace of the template; empty when it is cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Name of the template.
	// +required
	Name string `json:"name"`

	// UID of the template.
	// +optional
	UID types.UID `json:"uid,omitempty"`

	// ResourceVersion of the template this binding was made from.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// ReplicaRequirements is what one replica needs of a cluster.
type ReplicaRequirements struct {
	// NodeClaim is what it needs of a node.
	// +optional
	NodeClaim *NodeClaim `json:"nodeClaim,omitempty"`

	// ResourceRequest is what it takes up.
	// +optional
	ResourceRequest corev1.ResourceList `json:"resourceRequest,omitempty"`

	// Namespace whose quota counts.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// PriorityClassName of its pods.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// Component is one pod template of a workload that has several.
type Component struct {
	// Name of the component, unique within the workload.
	// +required
	Name string `json:"name"`

	// Replicas the component asks for.
	// +required
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`

	// ReplicaRequirements is what one of its replicas needs.
	// +optional
	ReplicaRequirements *ComponentReplicaRequirements `json:"replicaRequirements,omitempty"`
}

// ComponentReplicaRequirements is what one replica of a component needs of a cluster.
type ComponentReplicaRequirements struct {
	// NodeClaim is what it needs of a node.
	// +optional
	NodeClaim *NodeClaim `json:"nodeClaim,omitempty"`

	// ResourceRequest is what it takes up.
	// +optional
	ResourceRequest corev1.ResourceList `json:"resourceRequest,omitempty"`

	// PriorityClassName of its pods.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// NodeClaim is what a pod demands of the node it runs on.
type NodeClaim struct {
	// HardNodeAffinity is the affinity that must hold when the pod is scheduled.
	// +optional
	HardNodeAffinity *corev1.NodeSelector `json:"hardNodeAffinity,omitempty"`

	// NodeSelector lists labels the node must have.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations of the pod.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// TargetCluster is a chosen cluster and its share.
type TargetCluster struct {
	// Name of the cluster.
	// +required
	Name string `json:"name"`

	// Replicas the cluster runs.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// Components the cluster runs.
	// +optional
	Components []TargetComponent `json:"components,omitempty"`
}

// TargetComponent is a cluster's share of one component.
type TargetComponent struct {
	// Name of the component.
	// +required
	Name string `json:"name"`

	// Replicas the cluster runs.
	// +required
	Replicas int32 `json:"replicas"`
}

// BindingSnapshot is what an attached binding remembers of a binding that needs it.
type BindingSnapshot struct {
	// Namespace of the binding; empty for a ClusterResourceBinding.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Name of the binding.
	// +required
	Name string `json:"name"`

	// Clusters chosen for the binding.
	// +optional
	Clusters []TargetCluster `json:"clusters,omitempty"`
}

// Suspension pauses dispatching, as a policy requests, or scheduling, as an external queue may request.
type Suspension struct {
	policyv1alpha1.Suspension `json:",inline"`

	// Scheduling excludes the binding from scheduling.
	// +optional
	Scheduling *bool `json:"scheduling,omitempty"`
}

// SchedulePriority is the value of the priority class that a policy names.
type SchedulePriority struct {
	// Priority in the scheduler's queue; higher comes first.
	// +optional
	// +kubebuilder:default=0
	Priority int32 `json:"priority,omitempty"`
}

// WorkloadAffinityGroups are the groups of a template, each written as "key=value".
type WorkloadAffinityGroups struct {
	// AffinityGroup is the group it stays together with.
	// +optional
	AffinityGroup string `json:"affinityGroup,omitempty"`

	// AntiAffinityGroup is the group it stays apart from.
	// +optional
	AntiAffinityGroup string `json:"antiAffinityGroup,omitempty"`
}
