package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ProtectionPolicy protects objects from being deleted or scaled down by mistake. The gateway checks every request
// against all policies; a request must satisfy each policy that selects its object. The annotation
// cellplane.io/break-glass on an object, with a reason, lets requests pass.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=protectionpolicies,scope=Cluster,categories={cellplane}
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.action`
// +kubebuilder:printcolumn:name="Deletion",type=boolean,JSONPath=`.spec.deletion.enabled`
// +kubebuilder:printcolumn:name="Max-Decrease",type=string,JSONPath=`.spec.scaleDown.maxDecrease`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ProtectionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which objects are protected from what.
	// +required
	Spec ProtectionPolicySpec `json:"spec"`
}

// ProtectionPolicyList is a list of ProtectionPolicy.
//
// +kubebuilder:object:root=true
type ProtectionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ProtectionPolicy `json:"items"`
}

// ProtectionPolicySpec says which objects are protected from what.
//
// +kubebuilder:validation:XValidation:rule="has(self.deletion) || has(self.scaleDown)",message="deletion or scaleDown must be given, or nothing is guarded against"
type ProtectionPolicySpec struct {
	// ResourceSelectors select the objects; an object is protected if any of them matches.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	ResourceSelectors []ProtectedResources `json:"resourceSelectors"`

	// Action on a request that violates the policy.
	// +optional
	// +kubebuilder:validation:Enum=Deny;Warn
	// +kubebuilder:default=Deny
	Action ProtectionAction `json:"action,omitempty"`

	// Deletion protects from deletion.
	// +optional
	Deletion *DeletionProtection `json:"deletion,omitempty"`

	// ScaleDown protects from losing many replicas at once.
	// +optional
	ScaleDown *ScaleDownProtection `json:"scaleDown,omitempty"`
}

// ProtectedResources selects objects. All parts must match; an absent part matches everything.
type ProtectedResources struct {
	// APIGroups of the objects; the core group is "", and "*" stands alone for all.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!('*' in self) || size(self) == 1",message="apiGroups: * stands alone"
	APIGroups []string `json:"apiGroups"`

	// Kinds of the objects; "*" stands alone for all.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!('*' in self) || size(self) == 1",message="kinds: * stands alone"
	Kinds []string `json:"kinds"`

	// Namespaces of the objects. Cluster-scoped objects are in none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// NamespaceSelector selects objects by the labels of their namespace, and Namespace objects by their own.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// LabelSelector selects objects by their labels before the request.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// ProtectionAction is the action on a request that violates a policy.
type ProtectionAction string

const (
	// ProtectionDeny refuses the request.
	ProtectionDeny ProtectionAction = "Deny"
	// ProtectionWarn lets the request pass with a warning.
	ProtectionWarn ProtectionAction = "Warn"
)

// DeletionProtection protects from deletion.
type DeletionProtection struct {
	// Enabled turns the protection on.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// AllowScaledToZero allows the deletion of workloads with zero replicas.
	// +optional
	AllowScaledToZero bool `json:"allowScaledToZero,omitempty"`
}

// ScaleDownProtection protects from losing many replicas at once. If both limits are given, both must hold.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxDecrease) || has(self.window)",message="maxDecrease or window must be given, or nothing is guarded against"
type ScaleDownProtection struct {
	// MaxDecrease is how many replicas a single request may remove, as a number or as a percentage of the replicas
	// before the request, rounded down.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[1-9]?[0-9])%$')",message="maxDecrease must be a number that is not negative, or a percentage from 0% to 100%"
	MaxDecrease *intstr.IntOrString `json:"maxDecrease,omitempty"`

	// Window limits what several requests remove together.
	// +optional
	Window *ScaleDownWindow `json:"window,omitempty"`
}

// ScaleDownWindow limits what requests within some time remove together.
type ScaleDownWindow struct {
	// Seconds is the length of the window, which ends now.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	Seconds int32 `json:"seconds"`

	// MaxDecrease is how many replicas may be removed within the window, as a number or as a percentage of the
	// highest number of replicas within it, rounded down.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[1-9]?[0-9])%$')",message="maxDecrease must be a number that is not negative, or a percentage from 0% to 100%"
	MaxDecrease intstr.IntOrString `json:"maxDecrease"`
}
