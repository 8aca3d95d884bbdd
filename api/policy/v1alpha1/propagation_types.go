package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PropagationPolicy propagates templates of its namespace to member clusters.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=propagationpolicies,scope=Namespaced,shortName=pp,categories={karmada-io}
// +kubebuilder:printcolumn:name="CONFLICT-RESOLUTION",type=string,JSONPath=`.spec.conflictResolution`
// +kubebuilder:printcolumn:name="PRIORITY",type=string,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type PropagationPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what goes where.
	// +required
	Spec PropagationSpec `json:"spec"`
}

// PropagationPolicyList is a list of PropagationPolicy.
//
// +kubebuilder:object:root=true
type PropagationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PropagationPolicy `json:"items"`
}

// ClusterPropagationPolicy propagates cluster-scoped templates, and templates of any namespace, to member clusters.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusterpropagationpolicies,scope=Cluster,shortName=cpp,categories={karmada-io}
// +kubebuilder:printcolumn:name="CONFLICT-RESOLUTION",type=string,JSONPath=`.spec.conflictResolution`
// +kubebuilder:printcolumn:name="PRIORITY",type=string,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterPropagationPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what goes where.
	// +required
	Spec PropagationSpec `json:"spec"`
}

// ClusterPropagationPolicyList is a list of ClusterPropagationPolicy.
//
// +kubebuilder:object:root=true
type ClusterPropagationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterPropagationPolicy `json:"items"`
}

// PropagationSpec says which templates go to which clusters, and how.
//
// +kubebuilder:validation:XValidation:rule="self.preemption != 'Always' || self.resourceSelectors.all(s, has(s.name) && size(s.name) > 0)",fieldPath=".resourceSelectors",message="preemption Always needs a name in every one of resourceSelectors"
// +kubebuilder:validation:XValidation:rule="!has(self.failover) || !has(self.failover.application) || (has(self.propagateDeps) && self.propagateDeps)",fieldPath=".propagateDeps",message="failover.application needs propagateDeps to be true"
type PropagationSpec struct {
	// ResourceSelectors select the templates. There is no wildcard for kinds, so that nothing sensitive is
	// propagated by accident.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	ResourceSelectors []ResourceSelector `json:"resourceSelectors"`

	// Association is the deprecated name of propagateDeps.
	// +optional
	Association bool `json:"association,omitempty"`

	// PropagateDeps also propagates what a template refers to, such as its ConfigMaps and Secrets.
	// +optional
	PropagateDeps bool `json:"propagateDeps,omitempty"`

	// Placement selects the clusters.
	// +optional
	Placement Placement `json:"placement,omitzero"`

	// Priority decides between policies that match the same template; the higher one wins.
	// +optional
	// +kubebuilder:default=0
	Priority *int32 `json:"priority,omitempty"`

	// Preemption says whether this policy may take templates from policies of lower priority. Always needs every
	// resource selector to give a name.
	// +optional
	// +kubebuilder:validation:Enum=Always;Never
	// +kubebuilder:default=Never
	Preemption PreemptionBehavior `json:"preemption,omitempty"`

	// DependentOverrides are override policies that must exist before anything is propagated.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	DependentOverrides []string `json:"dependentOverrides,omitempty"`

	// SchedulerName is the scheduler that places these templates. It cannot be changed.
	// +optional
	// +kubebuilder:default=default-scheduler
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="schedulerName cannot be changed"
	SchedulerName string `json:"schedulerName,omitempty"`

	// Failover says when workloads leave a cluster. Without it they stay.
	// +optional
	Failover *FailoverBehavior `json:"failover,omitempty"`

	// ConflictResolution says what happens if a cluster already has an object of that name that the federation does
	// not manage.
	// +optional
	// +kubebuilder:validation:Enum=Abort;Overwrite
	// +kubebuilder:default=Abort
	ConflictResolution ConflictResolution `json:"conflictResolution,omitempty"`

	// ActivationPreference Lazy applies a changed policy only when the template itself changes.
	// +optional
	// +kubebuilder:validation:Enum=Lazy
	ActivationPreference ActivationPreference `json:"activationPreference,omitempty"`

	// Suspension pauses propagation to all or to some clusters.
	// +optional
	Suspension *Suspension `json:"suspension,omitempty"`

	// PreserveResourcesOnDeletion leaves the copies in the clusters when the template is deleted.
	// +optional
	PreserveResourcesOnDeletion *bool `json:"preserveResourcesOnDeletion,omitempty"`

	// SchedulePriority orders the workloads of this policy in the scheduler's queue.
	// +optional
	SchedulePriority *SchedulePriority `json:"schedulePriority,omitempty"`
}

// PreemptionBehavior says whether a policy takes templates from others.
type PreemptionBehavior string

const (
	// PreemptAlways takes templates from policies of lower priority.
	PreemptAlways PreemptionBehavior = "Always"
	// PreemptNever leaves templates with the policy that claimed them first.
	PreemptNever PreemptionBehavior = "Never"
)

// ConflictResolution says what happens to an existing object of the same name.
type ConflictResolution string

const (
	// ConflictOverwrite adopts and overwrites the object.
	ConflictOverwrite ConflictResolution = "Overwrite"
	// ConflictAbort leaves the object alone and reports the conflict.
	ConflictAbort ConflictResolution = "Abort"
)

// ActivationPreference says when a changed policy takes effect.
type ActivationPreference string

// LazyActivation waits for the next change of the template.
const LazyActivation ActivationPreference = "Lazy"

// Suspension pauses parts of propagation. Deletions still go through.
//
// +kubebuilder:validation:XValidation:rule="!has(self.dispatching) || !self.dispatching || !has(self.dispatchingOnClusters) || !has(self.dispatchingOnClusters.clusterNames) || size(self.dispatchingOnClusters.clusterNames) == 0",fieldPath=".dispatchingOnClusters",message="dispatching and dispatchingOnClusters exclude each other"
type Suspension struct {
	// Dispatching pauses propagation to all clusters. It excludes dispatchingOnClusters.
	// +optional
	Dispatching *bool `json:"dispatching,omitempty"`

	// DispatchingOnClusters pauses propagation to some clusters.
	// +optional
	DispatchingOnClusters *SuspendClusters `json:"dispatchingOnClusters,omitempty"`
}

// SuspendClusters lists clusters by name.
type SuspendClusters struct {
	// ClusterNames are the clusters.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	ClusterNames []string `json:"clusterNames,omitempty"`
}

// PriorityClassSource is where a priority class is looked up.
type PriorityClassSource string

// KubePriorityClass is a PriorityClass of scheduling.k8s.io.
const KubePriorityClass PriorityClassSource = "KubePriorityClass"

// SchedulePriority names the priority class that orders workloads in the scheduler's queue.
type SchedulePriority struct {
	// PriorityClassSource says where the class is looked up.
	// +required
	// +kubebuilder:validation:Enum=KubePriorityClass
	PriorityClassSource PriorityClassSource `json:"priorityClassSource"`

	// PriorityClassName is the name of the class.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName"`
}
