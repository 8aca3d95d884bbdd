package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// ResourceInterpreterContext is the message between the engine and an interpreter webhook: first with a request,
// then with the response. It is never stored.
//
// +kubebuilder:object:root=true
type ResourceInterpreterContext struct {
	metav1.TypeMeta `json:",inline"`

	// Request of the engine.
	// +optional
	Request *ResourceInterpreterRequest `json:"request,omitempty"`

	// Response of the webhook.
	// +optional
	Response *ResourceInterpreterResponse `json:"response,omitempty"`
}

// ResourceInterpreterRequest is a request about an object.
type ResourceInterpreterRequest struct {
	// UID of the request.
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

	// Operation to perform.
	// +required
	Operation InterpreterOperation `json:"operation"`

	// Object of the request.
	// +optional
	Object runtime.RawExtension `json:"object,omitzero"`

	// ObservedObject is the member's object. It is set for Retain.
	// +optional
	ObservedObject *runtime.RawExtension `json:"observedObject,omitempty"`

	// DesiredReplicas is the number of replicas to set. It is set for ReviseReplica.
	// +optional
	DesiredReplicas *int32 `json:"replicas,omitempty"`

	// AggregatedStatus holds the clusters' statuses. It is set for AggregateStatus.
	// +optional
	AggregatedStatus []workv1alpha2.AggregatedStatusItem `json:"aggregatedStatus,omitempty"`

	// RolloutGrant is what the cluster may do. It is set for ReviseRollout.
	// +optional
	RolloutGrant *RolloutGrant `json:"rolloutGrant,omitempty"`
}

// ResourceInterpreterResponse is the response to a request.
type ResourceInterpreterResponse struct {
	// UID of the request.
	// +required
	UID types.UID `json:"uid"`

	// Successful reports whether the request succeeded.
	// +required
	Successful bool `json:"successful"`

	// Status explains a failure.
	// +optional
	Status *RequestStatus `json:"status,omitempty"`

	// Patch is the change to the object, for ReviseReplica, Retain, AggregateStatus and ReviseRollout.
	// +optional
	Patch []byte `json:"patch,omitempty"`

	// PatchType is the format of the patch.
	// +optional
	PatchType *PatchType `json:"patchType,omitempty"`

	// ReplicaRequirements is the result of InterpretReplica.
	// +optional
	ReplicaRequirements *workv1alpha2.ReplicaRequirements `json:"replicaRequirements,omitempty"`

	// Replicas is the result of InterpretReplica.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// Components is the result of InterpretComponent.
	// +optional
	Components []workv1alpha2.Component `json:"components,omitempty"`

	// Dependencies is the result of InterpretDependency.
	// +optional
	Dependencies []DependentObjectReference `json:"dependencies,omitempty"`

	// RawStatus is the result of InterpretStatus.
	// +optional
	RawStatus *runtime.RawExtension `json:"rawStatus,omitempty"`

	// Healthy is the result of InterpretHealth.
	// +optional
	Healthy *bool `json:"healthy,omitempty"`

	// Rollout is the result of InterpretRollout; it is missing if the object is not updated step by step.
	// +optional
	Rollout *WorkloadRollout `json:"rollout,omitempty"`
}

// WorkloadRollout is what an object says about its rolling update: in a template and its copies the bounds, in the object of a member also how far it is.
type WorkloadRollout struct {
	// Replicas is how many pods there should be.
	// +required
	Replicas int32 `json:"replicas"`

	// MaxSurge is how many pods there may be above the replicas, as a number or a percentage, which is rounded up. It is missing if the controller never has more
	// pods than replicas.
	// +optional
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`

	// MaxUnavailable is how many pods may be missing from the replicas, as a number or a percentage, which is rounded down. If both bounds are zero, it is one.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// Paused is whether the update is stopped.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// ObservedGeneration is the generation that the status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Pods is how many pods there are, without those that are terminating.
	// +optional
	Pods int32 `json:"pods,omitempty"`

	// Updated is how many of them have the pod template of this object.
	// +optional
	Updated int32 `json:"updated,omitempty"`

	// Available is how many of them are available.
	// +optional
	Available int32 `json:"available,omitempty"`

	// Terminating is how many pods are still to go before others take their place.
	// +optional
	Terminating int32 `json:"terminating,omitempty"`

	// Failed is whether the controller has given up waiting for the update.
	// +optional
	Failed bool `json:"failed,omitempty"`
}

// RolloutGrant is what one cluster may do during a rolling update, in pods.
type RolloutGrant struct {
	// Replicas is how many pods the cluster should have.
	// +required
	Replicas int32 `json:"replicas"`

	// MaxSurge is how many pods it may have above the replicas.
	// +required
	MaxSurge int32 `json:"maxSurge"`

	// MaxUnavailable is how many pods may be missing from the replicas.
	// +required
	MaxUnavailable int32 `json:"maxUnavailable"`

	// Paused is whether it has to stop.
	// +required
	Paused bool `json:"paused"`
}

// RequestStatus explains why a request failed.
type RequestStatus struct {
	// Message is a human-readable message.
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

	// LabelSelector selects objects by label.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}
