package v1alpha1

// PurgeMode says when the copy in a cluster is deleted after a workload was moved away.
type PurgeMode string

const (
	// PurgeModeDirectly removes the old copy before the new one is made, for workloads that must never run twice.
	PurgeModeDirectly PurgeMode = "Directly"
	// PurgeModeGracefully keeps the old copy until the new one is healthy or the grace period is over.
	PurgeModeGracefully PurgeMode = "Gracefully"
	// PurgeModeNever keeps the old copy until a user removes it.
	PurgeModeNever PurgeMode = "Never"
)

// FailoverBehavior says when and how a failing workload leaves a cluster.
type FailoverBehavior struct {
	// Application moves a workload that is unhealthy in a cluster. It requires propagateDeps, so that the
	// dependencies of the workload move with it.
	// +optional
	Application *ApplicationFailoverBehavior `json:"application,omitempty"`

	// Cluster moves a workload off a cluster that has failed.
	// +optional
	Cluster *ClusterFailoverBehavior `json:"cluster,omitempty"`
}

// ApplicationFailoverBehavior is the reaction to an unhealthy workload.
//
// +kubebuilder:validation:XValidation:rule="!has(self.gracePeriodSeconds) || self.purgeMode == 'Gracefully'",fieldPath=".gracePeriodSeconds",message="gracePeriodSeconds belongs to purgeMode Gracefully"
type ApplicationFailoverBehavior struct {
	// DecisionConditions must all hold before the workload is moved.
	// +required
	DecisionConditions DecisionConditions `json:"decisionConditions"`

	// PurgeMode says when the old copy is deleted.
	// +optional
	// +kubebuilder:validation:Enum=Directly;Gracefully;Never
	// +kubebuilder:default=Gracefully
	PurgeMode PurgeMode `json:"purgeMode,omitempty"`

	// GracePeriodSeconds is how long the old copy is kept while the new one is unhealthy. It requires purgeMode
	// Gracefully; the default is 600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	GracePeriodSeconds *int32 `json:"gracePeriodSeconds,omitempty"`

	// StatePreservation carries parts of the old copy's status over to the new one.
	// +optional
	StatePreservation *StatePreservation `json:"statePreservation,omitempty"`
}

// ClusterFailoverBehavior is the reaction to a failed cluster.
type ClusterFailoverBehavior struct {
	// PurgeMode says when the old copy is deleted.
	// +optional
	// +kubebuilder:validation:Enum=Directly;Gracefully
	// +kubebuilder:default=Gracefully
	PurgeMode PurgeMode `json:"purgeMode,omitempty"`

	// StatePreservation carries parts of the old copy's status over to the new one.
	// +optional
	StatePreservation *StatePreservation `json:"statePreservation,omitempty"`
}

// DecisionConditions are what must hold before an unhealthy workload is moved.
type DecisionConditions struct {
	// TolerationSeconds is how long the workload must have been unhealthy.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=300
	TolerationSeconds *int32 `json:"tolerationSeconds,omitempty"`
}

// StatePreservation lists what is carried over from the status of the old copy.
type StatePreservation struct {
	// Rules each carry one value.
	// +required
	// +kubebuilder:validation:MaxItems=64
	Rules []StatePreservationRule `json:"rules"`
}

// StatePreservationRule turns one value of the old copy's status into a label of the new copy.
type StatePreservationRule struct {
	// AliasLabelName is the key of the label.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	AliasLabelName string `json:"aliasLabelName"`

	// JSONPath finds the value in the status, for example "{.jobStatus.state}".
	// +required
	// +kubebuilder:validation:MinLength=1
	JSONPath string `json:"jsonPath"`
}
