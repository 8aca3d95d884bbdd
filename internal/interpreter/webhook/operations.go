package webhook

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
)

// Replicas returns the replicas of a template and the requirements of each.
func (s *Set) Replicas(ctx context.Context, obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error) {
	h, response, err := s.ask(ctx, obj, configv1alpha1.InterpreterOperationInterpretReplica, configv1alpha1.ResourceInterpreterRequest{})
	if err != nil {
		return 0, nil, err
	}
	if response.Replicas == nil || *response.Replicas < 0 {
		return 0, nil, h.incomplete("replicas")
	}
	if r := response.ReplicaRequirements; r != nil && r.Namespace == "" {
		r.Namespace = obj.GetNamespace()
	}
	return *response.Replicas, response.ReplicaRequirements, nil
}

// Components returns the parts of a template that has several pod templates.
func (s *Set) Components(ctx context.Context, obj *unstructured.Unstructured) ([]workv1alpha2.Component, error) {
	_, response, err := s.ask(ctx, obj, configv1alpha1.InterpreterOperationInterpretComponent, configv1alpha1.ResourceInterpreterRequest{})
	if err != nil {
		return nil, err
	}
	return response.Components, nil
}

// ReviseReplica returns the object with its replicas set.
func (s *Set) ReviseReplica(ctx context.Context, obj *unstructured.Unstructured, replicas int32) (*unstructured.Unstructured, error) {
	return s.change(ctx, obj, configv1alpha1.InterpreterOperationReviseReplica, configv1alpha1.ResourceInterpreterRequest{DesiredReplicas: &replicas})
}

// Retain returns the desired object with the fields that the member owns.
func (s *Set) Retain(ctx context.Context, desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	raw, err := observed.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding the observed object: %w", err)
	}
	return s.change(ctx, desired, configv1alpha1.InterpreterOperationRetain,
		configv1alpha1.ResourceInterpreterRequest{ObservedObject: &runtime.RawExtension{Raw: raw}})
}

// AggregateStatus returns the template with the status that the members' statuses add up to.
func (s *Set) AggregateStatus(ctx context.Context, template *unstructured.Unstructured, items []workv1alpha2.AggregatedStatusItem) (*unstructured.Unstructured, error) {
	return s.change(ctx, template, configv1alpha1.InterpreterOperationAggregateStatus, configv1alpha1.ResourceInterpreterRequest{AggregatedStatus: items})
}

// ReflectStatus returns the part of a member object's status that is reported.
func (s *Set) ReflectStatus(ctx context.Context, obj *unstructured.Unstructured) (*runtime.RawExtension, error) {
	_, response, err := s.ask(ctx, obj, configv1alpha1.InterpreterOperationInterpretStatus, configv1alpha1.ResourceInterpreterRequest{})
	if err != nil {
		return nil, err
	}
	return response.RawStatus, nil
}

// Health reports whether a member object is healthy.
func (s *Set) Health(ctx context.Context, obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	h, response, err := s.ask(ctx, obj, configv1alpha1.InterpreterOperationInterpretHealth, configv1alpha1.ResourceInterpreterRequest{})
	if err != nil {
		return workv1alpha2.ResourceUnknown, err
	}
	if response.Healthy == nil {
		return workv1alpha2.ResourceUnknown, h.incomplete("healthy")
	}
	return kinds.Healthy(*response.Healthy), nil
}

// Dependencies returns the objects that an object refers to.
func (s *Set) Dependencies(ctx context.Context, obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	_, response, err := s.ask(ctx, obj, configv1alpha1.InterpreterOperationInterpretDependency, configv1alpha1.ResourceInterpreterRequest{})
	if err != nil {
		return nil, err
	}
	return response.Dependencies, nil
}

// Rollout returns what an object says about its rolling update, nil if it is not updated step by step.
func (s *Set) Rollout(ctx context.Context, obj *unstructured.Unstructured) (*configv1alpha1.WorkloadRollout, error) {
	_, response, err := s.ask(ctx, obj, configv1alpha1.InterpreterOperationInterpretRollout, configv1alpha1.ResourceInterpreterRequest{})
	if err != nil {
		return nil, err
	}
	return response.Rollout, nil
}

// ReviseRollout returns the object with what a cluster may do during its rolling update.
func (s *Set) ReviseRollout(ctx context.Context, obj *unstructured.Unstructured, grant configv1alpha1.RolloutGrant) (*unstructured.Unstructured, error) {
	return s.change(ctx, obj, configv1alpha1.InterpreterOperationReviseRollout, configv1alpha1.ResourceInterpreterRequest{RolloutGrant: &grant})
}

func (h *hook) incomplete(field string) error {
	return fmt.Errorf("%s: the response lacks a usable %s", h.name, field)
}
