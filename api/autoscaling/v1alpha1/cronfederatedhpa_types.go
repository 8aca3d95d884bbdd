package v1alpha1

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CronFederatedHPA scales a template, or the limits of a FederatedHPA, on a schedule.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=cronfederatedhpas,scope=Namespaced,shortName=cronfhpa,categories={karmada-io}
// +kubebuilder:printcolumn:name="REFERENCE-KIND",type=string,JSONPath=`.spec.scaleTargetRef.kind`
// +kubebuilder:printcolumn:name="REFERENCE-NAME",type=string,JSONPath=`.spec.scaleTargetRef.name`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type CronFederatedHPA struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is scaled when.
	// +required
	Spec CronFederatedHPASpec `json:"spec"`

	// Status is the history.
	// +optional
	Status CronFederatedHPAStatus `json:"status,omitzero"`
}

// CronFederatedHPAList is a list of CronFederatedHPA.
//
// +kubebuilder:object:root=true
type CronFederatedHPAList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CronFederatedHPA `json:"items"`
}

// CronFederatedHPASpec names a target and rules for it.
//
// +kubebuilder:validation:XValidation:rule="self.scaleTargetRef.kind == 'FederatedHPA' && has(self.scaleTargetRef.apiVersion) && self.scaleTargetRef.apiVersion.startsWith('autoscaling.karmada.io/') ? self.rules.all(r, has(r.targetMinReplicas) || has(r.targetMaxReplicas)) : self.rules.all(r, has(r.targetReplicas))",fieldPath=".rules",message="rules for a FederatedHPA need targetMinReplicas or targetMaxReplicas, all others need targetReplicas"
type CronFederatedHPASpec struct {
	// ScaleTargetRef is a template with a scale subresource, or a FederatedHPA.
	// +required
	ScaleTargetRef autoscalingv2.CrossVersionObjectReference `json:"scaleTargetRef"`

	// Rules each scale at their own times; their names differ.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Rules []CronFederatedHPARule `json:"rules"`
}

// CronFederatedHPARule scales at certain times. Missed runs are not repeated.
//
// +kubebuilder:validation:XValidation:rule="!has(self.targetMinReplicas) || !has(self.targetMaxReplicas) || self.targetMinReplicas <= self.targetMaxReplicas",fieldPath=".targetMinReplicas",message="targetMinReplicas must not exceed targetMaxReplicas"
type CronFederatedHPARule struct {
	// Name of the rule. Its history is kept under this name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Name string `json:"name"`

	// Schedule in cron format.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^((CRON_)?TZ=\S+\s+)?(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|@every\s+\S+|[0-9A-Za-z*/,?-]+(\s+[0-9A-Za-z*/,?-]+){4})$`
	Schedule string `json:"schedule"`

	// TargetReplicas is the number of replicas to set on a template.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TargetReplicas *int32 `json:"targetReplicas,omitempty"`

	// TargetMinReplicas is the lower bound to set on a FederatedHPA.
	// +optional
	// +kubebuilder:validation:Minimum=1
	TargetMinReplicas *int32 `json:"targetMinReplicas,omitempty"`

	// TargetMaxReplicas is the upper bound to set on a FederatedHPA.
	// +optional
	// +kubebuilder:validation:Minimum=1
	TargetMaxReplicas *int32 `json:"targetMaxReplicas,omitempty"`

	// Suspend stops the rule.
	// +optional
	// +kubebuilder:default=false
	Suspend *bool `json:"suspend,omitempty"`

	// TimeZone of the schedule, a name of the IANA database. Without it the time zone of the engine counts.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`
	TimeZone *string `json:"timeZone,omitempty"`

	// SuccessfulHistoryLimit is how many successful runs are kept.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	// +kubebuilder:default=3
	SuccessfulHistoryLimit *int32 `json:"successfulHistoryLimit,omitempty"`

	// FailedHistoryLimit is how many failed runs are kept.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=32
	// +kubebuilder:default=3
	FailedHistoryLimit *int32 `json:"failedHistoryLimit,omitempty"`
}

// CronFederatedHPAStatus is the history of the rules.
type CronFederatedHPAStatus struct {
	// ExecutionHistories is the history of each rule.
	// +optional
	ExecutionHistories []ExecutionHistory `json:"executionHistories,omitempty"`
}

// ExecutionHistory is the history of one rule.
type ExecutionHistory struct {
	// RuleName names the rule.
	// +required
	RuleName string `json:"ruleName"`

	// NextExecutionTime is when the rule runs next; unset while it is suspended.
	// +optional
	NextExecutionTime *metav1.Time `json:"nextExecutionTime,omitempty"`

	// SuccessfulExecutions are the successful runs.
	// +optional
	SuccessfulExecutions []SuccessfulExecution `json:"successfulExecutions,omitempty"`

	// FailedExecutions are the failed runs.
	// +optional
	FailedExecutions []FailedExecution `json:"failedExecutions,omitempty"`
}

// SuccessfulExecution is a successful run.
type SuccessfulExecution struct {
	// ScheduleTime is when the run was due.
	// +required
	ScheduleTime *metav1.Time `json:"scheduleTime"`

	// ExecutionTime is when it happened.
	// +required
	ExecutionTime *metav1.Time `json:"executionTime"`

	// AppliedReplicas is the number of replicas set.
	// +optional
	AppliedReplicas *int32 `json:"appliedReplicas,omitempty"`

	// AppliedMaxReplicas is the upper bound set.
	// +optional
	AppliedMaxReplicas *int32 `json:"appliedMaxReplicas,omitempty"`

	// AppliedMinReplicas is the lower bound set.
	// +optional
	AppliedMinReplicas *int32 `json:"appliedMinReplicas,omitempty"`
}

// FailedExecution is a failed run.
type FailedExecution struct {
	// ScheduleTime is when the run was due.
	// +required
	ScheduleTime *metav1.Time `json:"scheduleTime"`

	// ExecutionTime is when it happened.
	// +required
	ExecutionTime *metav1.Time `json:"executionTime"`

	// Message is a human-readable message.
	// +required
	Message string `json:"message"`
}
