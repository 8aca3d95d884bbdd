package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// ResourceInterpreterContext is what the engine and an interpreter web hook exchange: a request on the way out, a
// response on the way back. It is never stored.
//
// +kubebuilder:object:root=true
type ResourceInterpreterContext struct {
	metav1.TypeMeta `json:",inline"`

	// Request is the question.
	// +optional
	Request *ResourceInterpreterRequest `json:"request,omitempty"`

	// Response is the answer.
	// +optional
	Response *ResourceInterpreterResponse `json:"response,omitempty"`
}

// ResourceInterpreterRequest is a question about an object.
type ResourceInterpreterRequest struct {
	// UID of the question.
	// +required
	UID types.UID `json:"uid"`

	// Kind of the object.
	// +required
	Kind metav1.GroupVersionKind `json:"kind"`

	// Name of the object.
	// +required
	Name string `json:"name"`

	// Namespace of the object; empty when it is cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Operation is what is asked.
	// +required
	Operation InterpreterOperation `json:"operation"`

	// Object is the object asked about.
	// +optional
	Object runtime.RawExtension `json:"object,omitzero"`

	// ObservedObject is the member's object. It comes with Retain.
	// +optional
	ObservedObject *runtime.RawExtension `json:"observedObject,omitempty"`

	// DesiredReplicas is the number of replicas to set. It comes with ReviseReplica.
	// +optional
	DesiredReplicas *int32 `json:"replicas,omitempty"`

	// AggregatedStatus are the clusters' statuses. They come with AggregateStatus.
	// +optional
	AggregatedStatus []workv1alpha2.AggregatedStatusItem `json:"aggregatedStatus,omitempty"`
}

// ResourceInterpreterResponse is the answer to a question.
type ResourceInterpreterResponse struct {
	// UID of the question.
	// +required
	UID types.UID `json:"uid"`

	// Successful tells whether the question was answered.
	// +required
	Successful bool `json:"successful"`

	// Status explains why it was not.
	// +optional
	Status *RequestStatus `json:"status,omitempty"`

	// Patch is the change to the object, for ReviseReplica, Retain and AggregateStatus.
	// +optional
	Patch []byte `json:"patch,omitempty"`

	// PatchType is the format of the patch.
	// +optional
	PatchType *PatchType `json:"patchType,omitempty"`

	// ReplicaRequirements answers InterpretReplica.
	// +optional
	ReplicaRequirements *workv1alpha2.ReplicaRequirements `json:"replicaRequirements,omitempty"`

	// Replicas answers InterpretReplica.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// Components answers InterpretComponent.
	// +optional
	Components []workv1alpha2.Component `json:"components,omitempty"`

	// Dependencies answers InterpretDependency.
	// +optional
	Dependencies []DependentObjectReference `json:"dependencies,omitempty"`

	// RawStatus answers InterpretStatus.
	// +optional
	RawStatus *runtime.RawExtension `json:"rawStatus,omitempty"`

	// Healthy answers InterpretHealth.
	// +optional
	Healthy *bool `json:"healthy,omitempty"`
}

// RequestStatus explains why a question was not answered.
type RequestStatus struct {
	// Message is a sentence for people.
	// +optional
	Message string `json:"message,omitempty"`

	// Code is an HTTP status code.
	// +optional
	Code int32 `json:"code,omitempty"`
}

// PatchType is the format of a patch.
type PatchType string

// PatchTypeJSONPatch is RFC 6902.
const PatchTypeJSONPatch PatchType = "JSONPatch"

// DependentObjectReference points at objects that another one refers to, by name or by label.
type DependentObjectReference struct {
	// APIVersion of the objects.
	// +required
	APIVersion string `json:"apiVersion"`

	// Kind of the objects.
	// +required
	Kind string `json:"kind"`

	// Namespace of the objects; empty when they are cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Name of a single object.
	// +optional
	Name string `json:"name,omitempty"`

	// LabelSelector picks objects by label.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}
