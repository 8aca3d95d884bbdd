package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// RolloutPolicy divides the updates of workloads in its namespace into stages. The bounds of a workload hold at any
// time; a stage is a limit on top of them.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=rolloutpolicies,scope=Namespaced,categories={cellplane}
// +kubebuilder:printcolumn:name="Stages",type=string,JSONPath=`.spec.stages[*].name`
// +kubebuilder:printcolumn:name="On-Failure",type=string,JSONPath=`.spec.failure.action`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RolloutPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec holds the stages.
	// +required
	Spec RolloutPolicySpec `json:"spec"`
}

// RolloutPolicyList is a list of RolloutPolicy.
//
// +kubebuilder:object:root=true
type RolloutPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RolloutPolicy `json:"items"`
}

// ClusterRolloutPolicy is a RolloutPolicy for workloads of all namespaces. A RolloutPolicy that selects a workload comes
// before it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusterrolloutpolicies,scope=Cluster,categories={cellplane}
// +kubebuilder:printcolumn:name="Stages",type=string,JSONPath=`.spec.stages[*].name`
// +kubebuilder:printcolumn:name="On-Failure",type=string,JSONPath=`.spec.failure.action`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterRolloutPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec holds the stages.
	// +required
	Spec RolloutPolicySpec `json:"spec"`
}

// ClusterRolloutPolicyList is a list of ClusterRolloutPolicy.
//
// +kubebuilder:object:root=true
type ClusterRolloutPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterRolloutPolicy `json:"items"`
}

// RolloutPolicySpec says in which stages workloads are updated, and what happens if an update fails.
type RolloutPolicySpec struct {
	// ResourceSelectors select the workloads, as those of a PropagationPolicy do.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	ResourceSelectors []policyv1alpha1.ResourceSelector `json:"resourceSelectors"`

	// Priority decides between policies that select the same workload: the highest one, then the narrowest selector,
	// then the first name.
	// +optional
	// +kubebuilder:default=0
	Priority int32 `json:"priority,omitempty"`

	// Stages are the stages, in order. A cluster belongs to the first stage that selects it. Clusters that none selects
	// are updated after the last one.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Stages []RolloutStage `json:"stages,omitempty"`

	// Failure says what counts as a failure, and what happens then. Without it a failed update is paused.
	// +optional
	Failure *RolloutFailure `json:"failure,omitempty"`

	// UnreachableClusters says how many pods of a cluster that does not answer count as available: none, or as many as
	// were last observed.
	// +optional
	// +kubebuilder:validation:Enum=Unavailable;LastObserved
	// +kubebuilder:default=Unavailable
	UnreachableClusters UnreachableClusters `json:"unreachableClusters,omitempty"`
}

// UnreachableClusters says how pods of clusters that do not answer count.
type UnreachableClusters string

const (
	// UnreachableUnavailable counts them as unavailable.
	UnreachableUnavailable UnreachableClusters = "Unavailable"
	// UnreachableLastObserved counts them as they were last observed.
	UnreachableLastObserved UnreachableClusters = "LastObserved"
)

// RolloutStage is a group of clusters that are updated before those of the next stage.
type RolloutStage struct {
	// Name of the stage.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Clusters selects the clusters of the stage, by name, labels, provider, region or zone. An absent one selects all.
	// +optional
	Clusters *policyv1alpha1.ClusterAffinity `json:"clusters,omitempty"`

	// MaxClusters is how many clusters of the stage are updated at the same time: a number, or a percentage of them,
	// rounded up. By default all are, as far as the bounds of the workload allow.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 : self.matches('^([1-9][0-9]?|100)%$')",message="maxClusters must be a positive number or a percentage from 1% to 100%"
	MaxClusters *intstr.IntOrString `json:"maxClusters,omitempty"`

	// Soak is how long the next stage waits after all clusters of this one are updated.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	Soak *metav1.Duration `json:"soak,omitempty"`

	// Approval says that the stage begins when somebody has approved it, with `cellplane rollout approve`.
	// +optional
	Approval bool `json:"approval,omitempty"`
}

// RolloutFailure says what counts as a failure of an update, and what happens then.
type RolloutFailure struct {
	// UnavailableFor is how long pods of a cluster that is being updated may be unavailable. A cluster fails after that
	// time, and in any case when the progress deadline of the workload has passed or it refuses the workload.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="unavailableFor must be positive"
	UnavailableFor *metav1.Duration `json:"unavailableFor,omitempty"`

	// ToleratedClusters is how many clusters may fail before the update does.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=0
	ToleratedClusters int32 `json:"toleratedClusters,omitempty"`

	// Action is what happens when the update fails: it is paused, until it is approved or replaced, or the workload gets
	// the pod template that it had before. That is done once: if the former pod template fails, too, the update is paused.
	// +optional
	// +kubebuilder:validation:Enum=Pause;RollBack
	// +kubebuilder:default=Pause
	Action RolloutFailureAction `json:"action,omitempty"`
}

// RolloutFailureAction is what happens when an update fails.
type RolloutFailureAction string

const (
	// RolloutPause pauses the update.
	RolloutPause RolloutFailureAction = "Pause"
	// RolloutRollBack gives the workload its former pod template.
	RolloutRollBack RolloutFailureAction = "RollBack"
)
