package kinds

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// Kind describes how a kind is interpreted. A nil function means that the kind does not implement the operation.
type Kind struct {
	// Replicas returns the replicas of a template and the requirements of each.
	Replicas func(obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error)
	// Components returns the parts of a template that has several pod templates.
	Components func(obj *unstructured.Unstructured) ([]workv1alpha2.Component, error)
	// ReviseReplica returns the object with its replicas set.
	ReviseReplica func(obj *unstructured.Unstructured, replicas int32) (*unstructured.Unstructured, error)
	// Retain returns the desired object with the fields that the member owns taken from the observed one.
	Retain func(desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error)
	// AggregateStatus returns the template with the status that the members' statuses add up to.
	AggregateStatus func(template *unstructured.Unstructured, items []workv1alpha2.AggregatedStatusItem) (*unstructured.Unstructured, error)
	// Conditions returns a template, whose status has just been aggregated, with the conditions that follow from it. The template before that
	// is the same object if nothing else in its status has changed.
	Conditions func(before, aggregated *unstructured.Unstructured, placed Placed, now time.Time) (*unstructured.Unstructured, error)
	// ReflectStatus returns the part of a member object's status that is reported, nil if it has none.
	ReflectStatus func(obj *unstructured.Unstructured) (*runtime.RawExtension, error)
	// Health returns the health of a member object.
	Health func(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error)
	// Dependencies returns the objects that an object refers to.
	Dependencies func(obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error)
}

// Table holds kinds by their group, version and kind.
type Table map[schema.GroupVersionKind]Kind

// Supports reports whether the kind implements an operation.
func (k Kind) Supports(op configv1alpha1.InterpreterOperation) bool {
	switch op {
	case configv1alpha1.InterpreterOperationInterpretReplica:
		return k.Replicas != nil
	case configv1alpha1.InterpreterOperationInterpretComponent:
		return k.Components != nil
	case configv1alpha1.InterpreterOperationReviseReplica:
		return k.ReviseReplica != nil
	case configv1alpha1.InterpreterOperationRetain:
		return k.Retain != nil
	case configv1alpha1.InterpreterOperationAggregateStatus:
		return k.AggregateStatus != nil
	case configv1alpha1.InterpreterOperationInterpretStatus:
		return k.ReflectStatus != nil
	case configv1alpha1.InterpreterOperationInterpretHealth:
		return k.Health != nil
	case configv1alpha1.InterpreterOperationInterpretDependency:
		return k.Dependencies != nil
	}
	return false
}

// Healthy turns a verdict into a health.
func Healthy(ok bool) workv1alpha2.ResourceHealth {
	if ok {
		return workv1alpha2.ResourceHealthy
	}
	return workv1alpha2.ResourceUnhealthy
}
