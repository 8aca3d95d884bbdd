package interpreter

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
	"github.com/cellplane/cellplane/internal/interpreter/native"
	"github.com/cellplane/cellplane/internal/interpreter/thirdparty"
)

// builtIn holds the built-in kinds. Third-party kinds take precedence over Kubernetes' own.
var builtIn = func() map[schema.GroupVersionKind]*builtInKind {
	out := map[schema.GroupVersionKind]*builtInKind{}
	for _, table := range []kinds.Table{native.Table, thirdparty.Table} {
		for gvk, kind := range table {
			out[gvk] = &builtInKind{kind}
		}
	}
	return out
}()

// builtInKind is the layer of one built-in kind.
type builtInKind struct{ kind kinds.Kind }

// Supports reports whether the kind implements the operation; nil stands for an unknown kind.
func (b *builtInKind) Supports(_ schema.GroupVersionKind, op configv1alpha1.InterpreterOperation) bool {
	return b != nil && b.kind.Supports(op)
}

// Replicas implements layer.
func (b *builtInKind) Replicas(_ context.Context, obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error) {
	return b.kind.Replicas(obj)
}

// Components implements layer.
func (b *builtInKind) Components(_ context.Context, obj *unstructured.Unstructured) ([]workv1alpha2.Component, error) {
	return b.kind.Components(obj)
}

// ReviseReplica implements layer.
func (b *builtInKind) ReviseReplica(_ context.Context, obj *unstructured.Unstructured, replicas int32) (*unstructured.Unstructured, error) {
	return b.kind.ReviseReplica(obj, replicas)
}

// Retain implements layer.
func (b *builtInKind) Retain(_ context.Context, desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return b.kind.Retain(desired, observed)
}

// AggregateStatus implements layer.
func (b *builtInKind) AggregateStatus(_ context.Context, template *unstructured.Unstructured, items []workv1alpha2.AggregatedStatusItem) (*unstructured.Unstructured, error) {
	return b.kind.AggregateStatus(template, items)
}

// ReflectStatus implements layer.
func (b *builtInKind) ReflectStatus(_ context.Context, obj *unstructured.Unstructured) (*runtime.RawExtension, error) {
	return b.kind.ReflectStatus(obj)
}

// Health implements layer.
func (b *builtInKind) Health(_ context.Context, obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	return b.kind.Health(obj)
}

// Dependencies implements layer.
func (b *builtInKind) Dependencies(_ context.Context, obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	return b.kind.Dependencies(obj)
}

// Rollout implements layer. The planner knows the built-in kinds itself, so it is never called.
func (b *builtInKind) Rollout(context.Context, *unstructured.Unstructured) (*configv1alpha1.WorkloadRollout, error) {
	return nil, nil
}

// ReviseRollout implements layer. It is never called.
func (b *builtInKind) ReviseRollout(_ context.Context, obj *unstructured.Unstructured, _ configv1alpha1.RolloutGrant) (*unstructured.Unstructured, error) {
	return obj, nil
}
