package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ProtectionPolicy guards objects against being deleted or scaled down by mistake. The gateway checks every request
// against all policies, and a request must satisfy each one that selects its object. The annotation
// cellplane.io/break-glass on an object, holding a reason, lets a request pass.
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

	// Spec says what is guarded against what.
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

// ProtectionPolicySpec says what is guarded against what.
//
// +kubebuilder:validation:XValidation:rule="has(self.deletion) || has(self.scaleDown)",message="deletion or scaleDown must be given, or nothing is guarded against"
type ProtectionPolicySpec struct {
	// ResourceSelectors pick the objects; an object is guarded if any of them picks it.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	ResourceSelectors []ProtectedResources `json:"resourceSelectors"`

	// Action is what happens to a request that the policy objects to.
	// +optional
	// +kubebuilder:validation:Enum=Deny;Warn
	// +kubebuilder:default=Deny
	Action ProtectionAction `json:"action,omitempty"`

	// Deletion guards against deletion.
	// +optional
	Deletion *DeletionProtection `json:"deletion,omitempty"`

	// ScaleDown guards against losing many replicas at once.
	// +optional
	ScaleDown *ScaleDownProtection `json:"scaleDown,omitempty"`
}

// ProtectedResources picks objects. All parts must agree; a part that is not given agrees with everything.
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

	// NamespaceSelector picks objects by the labels of their namespace, and Namespace objects by their own.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// LabelSelector picks objects by label. The labels before the request count.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// ProtectionAction is what happens to a request that a policy objects to.
type ProtectionAction string

const (
	// ProtectionDeny refuses the request.
	ProtectionDeny ProtectionAction = "Deny"
	// ProtectionWarn lets the request pass with a warning.
	ProtectionWarn ProtectionAction = "Warn"
)

// DeletionProtection guards against deletion.
type DeletionProtection struct {
	// Enabled turns the guard on.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// AllowScaledToZero lets workloads go that ask for no replicas.
	// +optional
	AllowScaledToZero bool `json:"allowScaledToZero,omitempty"`
}

// ScaleDownProtection guards against losing many replicas at once. Both bounds may be given; both must then hold.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxDecrease) || has(self.window)",message="maxDecrease or window must be given, or nothing is guarded against"
type ScaleDownProtection struct {
	// MaxDecrease is how many replicas a single request may take away, as a number or as a percentage of those the
	// object asks for before the request, rounded down.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[1-9]?[0-9])%$')",message="maxDecrease must be a number that is not negative, or a percentage from 0% to 100%"
	MaxDecrease *intstr.IntOrString `json:"maxDecrease,omitempty"`

	// Window bounds what several requests take away together.
	// +optional
	Window *ScaleDownWindow `json:"window,omitempty"`
}

// ScaleDownWindow bounds what the requests of some time take away together.
type ScaleDownWindow struct {
	// Seconds is the length of the window, which ends now.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	Seconds int32 `json:"seconds"`

	// MaxDecrease is how many replicas may be taken away within the window, as a number or as a percentage of the most
	// that the object asked for within it, rounded down.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[1-9]?[0-9])%$')",message="maxDecrease must be a number that is not negative, or a percentage from 0% to 100%"
	MaxDecrease intstr.IntOrString `json:"maxDecrease"`
}
