package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceInterpreterWebhookConfiguration lists webhooks that interpret kinds for the engine.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=resourceinterpreterwebhookconfigurations,scope=Cluster,categories={karmada-io}
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceInterpreterWebhookConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Webhooks are the webhooks; their names differ.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Webhooks []ResourceInterpreterWebhook `json:"webhooks"`
}

// ResourceInterpreterWebhookConfigurationList is a list of ResourceInterpreterWebhookConfiguration.
//
// +kubebuilder:object:root=true
type ResourceInterpreterWebhookConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ResourceInterpreterWebhookConfiguration `json:"items"`
}

// ResourceInterpreterWebhook is one webhook and its rules.
type ResourceInterpreterWebhook struct {
	// Name of the webhook, as a domain name of at least three parts.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?){2,}$`
	Name string `json:"name"`

	// ClientConfig says how the webhook is reached: an https URL or a Service.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.url) != has(self.service)",message="clientConfig needs exactly one of url and service"
	// +kubebuilder:validation:XValidation:rule="!has(self.url) || self.url.startsWith('https://')",message="url of clientConfig must be an https URL"
	ClientConfig admissionregistrationv1.WebhookClientConfig `json:"clientConfig"`

	// Rules say which operations on which kinds the webhook handles.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Rules []RuleWithOperations `json:"rules,omitempty"`

	// TimeoutSeconds bounds one request.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=30
	// +kubebuilder:default=10
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// InterpreterContextVersions are the versions of ResourceInterpreterContext that the webhook supports, in order
	// of preference. One of them must be v1alpha1.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="'v1alpha1' in self",message="interpreterContextVersions must hold v1alpha1"
	InterpreterContextVersions []string `json:"interpreterContextVersions"`
}

// InterpreterOperation is an operation of the interpreter.
type InterpreterOperation string

// Operations of the interpreter.
const (
	// InterpreterOperationAll stands for all operations but InterpretRollout and ReviseRollout, which webhooks made for Karmada do not know.
	InterpreterOperationAll InterpreterOperation = "*"
	// InterpreterOperationInterpretReplica returns the replicas and the requirements of one.
	InterpreterOperationInterpretReplica InterpreterOperation = "InterpretReplica"
	// InterpreterOperationInterpretComponent returns the components and their requirements.
	InterpreterOperationInterpretComponent InterpreterOperation = "InterpretComponent"
	// InterpreterOperationReviseReplica sets the replicas.
	InterpreterOperationReviseReplica InterpreterOperation = "ReviseReplica"
	// InterpreterOperationRetain keeps values that the member cluster set.
	InterpreterOperationRetain InterpreterOperation = "Retain"
	// InterpreterOperationAggregateStatus merges the clusters' statuses.
	InterpreterOperationAggregateStatus InterpreterOperation = "AggregateStatus"
	// InterpreterOperationInterpretDependency returns what the object refers to.
	InterpreterOperationInterpretDependency InterpreterOperation = "InterpretDependency"
	// InterpreterOperationInterpretStatus returns the part of the status that is reported.
	InterpreterOperationInterpretStatus InterpreterOperation = "InterpretStatus"
	// InterpreterOperationInterpretHealth returns whether the object is healthy.
	InterpreterOperationInterpretHealth InterpreterOperation = "InterpretHealth"
	// InterpreterOperationInterpretRollout returns the bounds of a rolling update and how far it is.
	InterpreterOperationInterpretRollout InterpreterOperation = "InterpretRollout"
	// InterpreterOperationReviseRollout sets what a cluster may do during a rolling update.
	InterpreterOperationReviseRollout InterpreterOperation = "ReviseRollout"
)

// RuleWithOperations matches operations on kinds.
type RuleWithOperations struct {
	// Operations matched; "*" stands alone and matches all but InterpretRollout and ReviseRollout.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Enum="*";InterpretReplica;InterpretComponent;ReviseReplica;Retain;AggregateStatus;InterpretDependency;InterpretStatus;InterpretHealth;InterpretRollout;ReviseRollout
	// +kubebuilder:validation:XValidation:rule="!('*' in self) || size(self) == 1",message="operations: * stands alone"
	Operations []InterpreterOperation `json:"operations"`

	Rule `json:",inline"`
}

// Rule matches kinds by group, version and kind. In each list "*" stands alone and matches all.
type Rule struct {
	// APIGroups matched; the core group is "".
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!('*' in self) || size(self) == 1",message="apiGroups: * stands alone"
	APIGroups []string `json:"apiGroups"`

	// APIVersions matched.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!('*' in self) || size(self) == 1",message="apiVersions: * stands alone"
	APIVersions []string `json:"apiVersions"`

	// Kinds matched.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!('*' in self) || size(self) == 1",message="kinds: * stands alone"
	Kinds []string `json:"kinds"`
}
