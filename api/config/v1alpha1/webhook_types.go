package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceInterpreterWebhookConfiguration lists web hooks that the engine asks about kinds.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=resourceinterpreterwebhookconfigurations,scope=Cluster,categories={karmada-io}
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceInterpreterWebhookConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Webhooks are the web hooks; their names differ.
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

// ResourceInterpreterWebhook is one web hook and what it is asked.
type ResourceInterpreterWebhook struct {
	// Name of the web hook, as a domain name of at least three parts.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?){2,}$`
	Name string `json:"name"`

	// ClientConfig says how the web hook is reached: an https URL or a Service.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.url) != has(self.service)",message="clientConfig needs exactly one of url and service"
	// +kubebuilder:validation:XValidation:rule="!has(self.url) || self.url.startsWith('https://')",message="url of clientConfig must be an https URL"
	ClientConfig admissionregistrationv1.WebhookClientConfig `json:"clientConfig"`

	// Rules say what the web hook is asked.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Rules []RuleWithOperations `json:"rules,omitempty"`

	// TimeoutSeconds bounds one request.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=30
	// +kubebuilder:default=10
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// InterpreterContextVersions are the versions of ResourceInterpreterContext the web hook understands, best
	// first. One of them must be v1alpha1.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="'v1alpha1' in self",message="interpreterContextVersions must hold v1alpha1"
	InterpreterContextVersions []string `json:"interpreterContextVersions"`
}

// InterpreterOperation is a question about an object.
type InterpreterOperation string

// The questions about an object.
const (
	// InterpreterOperationAll stands for all of them.
	InterpreterOperationAll InterpreterOperation = "*"
	// InterpreterOperationInterpretReplica asks for the replicas and the needs of one.
	InterpreterOperationInterpretReplica InterpreterOperation = "InterpretReplica"
	// InterpreterOperationInterpretComponent asks for the components and their needs.
	InterpreterOperationInterpretComponent InterpreterOperation = "InterpretComponent"
	// InterpreterOperationReviseReplica asks to set the replicas.
	InterpreterOperationReviseReplica InterpreterOperation = "ReviseReplica"
	// InterpreterOperationRetain asks to keep what the member cluster set.
	InterpreterOperationRetain InterpreterOperation = "Retain"
	// InterpreterOperationAggregateStatus asks to merge the clusters' statuses.
	InterpreterOperationAggregateStatus InterpreterOperation = "AggregateStatus"
	// InterpreterOperationInterpretDependency asks what the object refers to.
	InterpreterOperationInterpretDependency InterpreterOperation = "InterpretDependency"
	// InterpreterOperationInterpretStatus asks which part of the status is reported.
	InterpreterOperationInterpretStatus InterpreterOperation = "InterpretStatus"
	// InterpreterOperationInterpretHealth asks whether the object is healthy.
	InterpreterOperationInterpretHealth InterpreterOperation = "InterpretHealth"
)

// RuleWithOperations matches operations on kinds.
type RuleWithOperations struct {
	// Operations matched; "*" stands alone and matches all.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Enum="*";InterpretReplica;InterpretComponent;ReviseReplica;Retain;AggregateStatus;InterpretDependency;InterpretStatus;InterpretHealth
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
