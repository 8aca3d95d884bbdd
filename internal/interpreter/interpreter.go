package interpreter

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/customization"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
	"github.com/cellplane/cellplane/internal/interpreter/lua"
	"github.com/cellplane/cellplane/internal/interpreter/native"
	"github.com/cellplane/cellplane/internal/interpreter/webhook"
)

// Options configure an Interpreter. The zero value is useful.
type Options struct {
	// LuaLimits bound each call of a customization's script.
	LuaLimits lua.Limits
	// ResolveService finds webhooks that are configured by a Service. Without it only URLs work.
	ResolveService webhook.ServiceResolver
	// Clock is the time scripts see, the real one by default.
	Clock func() time.Time
}

// Interpreter combines the layers. It is safe for concurrent use.
type Interpreter struct {
	runner  *lua.Runner
	resolve webhook.ServiceResolver

	// writing orders the setters; operations only load the snapshots.
	writing        sync.Mutex
	customizations atomic.Pointer[customization.Set]
	webhooks       atomic.Pointer[webhook.Set]
}

// layer answers for the kinds and operations it supports. Its methods are called for those only.
type layer interface {
	Supports(gvk schema.GroupVersionKind, op configv1alpha1.InterpreterOperation) bool
	Replicas(ctx context.Context, obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error)
	Components(ctx context.Context, obj *unstructured.Unstructured) ([]workv1alpha2.Component, error)
	ReviseReplica(ctx context.Context, obj *unstructured.Unstructured, replicas int32) (*unstructured.Unstructured, error)
	Retain(ctx context.Context, desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error)
	AggregateStatus(ctx context.Context, template *unstructured.Unstructured, items []workv1alpha2.AggregatedStatusItem) (*unstructured.Unstructured, error)
	ReflectStatus(ctx context.Context, obj *unstructured.Unstructured) (*runtime.RawExtension, error)
	Health(ctx context.Context, obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error)
	Dependencies(ctx context.Context, obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error)
	Rollout(ctx context.Context, obj *unstructured.Unstructured) (*configv1alpha1.WorkloadRollout, error)
	ReviseRollout(ctx context.Context, obj *unstructured.Unstructured, grant configv1alpha1.RolloutGrant) (*unstructured.Unstructured, error)
}

// New returns an interpreter that knows the built-in kinds.
func New(options Options) *Interpreter {
	return &Interpreter{runner: lua.NewRunner(options.LuaLimits, options.Clock), resolve: options.ResolveService}
}

// SetCustomizations replaces all customizations at once. The error reports invalid ones; the others take effect,
// and operations of invalid ones fail when used.
func (i *Interpreter) SetCustomizations(list []*configv1alpha1.ResourceInterpreterCustomization) error {
	i.writing.Lock()
	defer i.writing.Unlock()
	set, err := customization.Compile(i.runner, list, i.customizations.Load())
	i.customizations.Store(set)
	return err
}

// SetWebhooks replaces all webhooks at once. The error reports invalid ones; the others take effect, and invalid
// ones fail when used.
func (i *Interpreter) SetWebhooks(list []*configv1alpha1.ResourceInterpreterWebhookConfiguration) error {
	i.writing.Lock()
	defer i.writing.Unlock()
	set, err := webhook.NewSet(list, i.resolve, i.webhooks.Load())
	i.webhooks.Store(set)
	return err
}

// ValidateCustomization returns the problems of a customization, with the line for those in a script, and its
// conflicts with the other customizations.
func ValidateCustomization(c *configv1alpha1.ResourceInterpreterCustomization, others []*configv1alpha1.ResourceInterpreterCustomization) error {
	return customization.Validate(c, others)
}

// Supports reports whether any layer implements an operation for a kind.
func (i *Interpreter) Supports(gvk schema.GroupVersionKind, op configv1alpha1.InterpreterOperation) bool {
	return i.layerFor(gvk, op) != nil
}

func (i *Interpreter) layerFor(gvk schema.GroupVersionKind, op configv1alpha1.InterpreterOperation) layer {
	if set := i.customizations.Load(); set.Supports(gvk, op) {
		return measured{set, byCustomization}
	}
	if set := i.webhooks.Load(); set.Supports(gvk, op) {
		return measured{set, byWebhook}
	}
	if kind := builtIn[gvk]; kind.Supports(gvk, op) {
		return kind
	}
	return nil
}

// Replicas returns the replicas of a template and the requirements of each.
func (i *Interpreter) Replicas(ctx context.Context, obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error) {
	l := i.layerFor(obj.GroupVersionKind(), configv1alpha1.InterpreterOperationInterpretReplica)
	if l == nil {
		return 0, nil, nil
	}
	replicas, requirements, err := l.Replicas(ctx, obj)
	return replicas, requirements, failed("finding the replicas of", obj, err)
}

// Components returns the parts of a template that has several pod templates, with the replicas and needs of each.
func (i *Interpreter) Components(ctx context.Context, obj *unstructured.Unstructured) ([]workv1alpha2.Component, error) {
	l := i.layerFor(obj.GroupVersionKind(), configv1alpha1.InterpreterOperationInterpretComponent)
	if l == nil {
		return nil, nil
	}
	components, err := l.Components(ctx, obj)
	return components, failed("finding the components of", obj, err)
}

// ReviseReplica returns the object with its replicas set.
func (i *Interpreter) ReviseReplica(ctx context.Context, obj *unstructured.Unstructured, replicas int32) (*unstructured.Unstructured, error) {
	l := i.layerFor(obj.GroupVersionKind(), configv1alpha1.InterpreterOperationReviseReplica)
	if l == nil {
		return obj, nil
	}
	revised, err := l.ReviseReplica(ctx, obj, replicas)
	return revised, failed("setting the replicas of", obj, err)
}

// Retain returns the desired object with the fields that the member owns taken from the observed one.
func (i *Interpreter) Retain(ctx context.Context, desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	l := i.layerFor(desired.GroupVersionKind(), configv1alpha1.InterpreterOperationRetain)
	if l == nil {
		return desired, nil
	}
	retained, err := l.Retain(ctx, desired, observed)
	return retained, failed("retaining member fields of", desired, err)
}

// AggregateStatus returns the template with the status that the members' statuses add up to. It returns the template
// itself if that is the status it has.
func (i *Interpreter) AggregateStatus(ctx context.Context, template *unstructured.Unstructured, items []workv1alpha2.AggregatedStatusItem) (*unstructured.Unstructured, error) {
	l := i.layerFor(template.GroupVersionKind(), configv1alpha1.InterpreterOperationAggregateStatus)
	if l == nil {
		return template, nil
	}
	aggregated, err := l.AggregateStatus(ctx, template, items)
	return aggregated, failed("aggregating the status of", template, err)
}

// Conditions returns a template, whose status AggregateStatus has just returned, with the conditions that follow from it. The template before that
// is the same object if its status has not changed. If a customization or a webhook aggregates the status, conditions are left to it.
func (i *Interpreter) Conditions(before, aggregated *unstructured.Unstructured, placed kinds.Placed, now time.Time) (*unstructured.Unstructured, error) {
	kind, ok := i.layerFor(aggregated.GroupVersionKind(), configv1alpha1.InterpreterOperationAggregateStatus).(*builtInKind)
	if !ok || kind.kind.Conditions == nil {
		return aggregated, nil
	}
	changed, err := kind.kind.Conditions(before, aggregated, placed, now)
	return changed, failed("finding the conditions of", aggregated, err)
}

// ReflectStatus returns the part of a member object's status that is reported, nil if it has none.
func (i *Interpreter) ReflectStatus(ctx context.Context, obj *unstructured.Unstructured) (*runtime.RawExtension, error) {
	l := i.layerFor(obj.GroupVersionKind(), configv1alpha1.InterpreterOperationInterpretStatus)
	if l == nil {
		status, err := kinds.ReflectWhole(obj)
		return status, failed("reflecting the status of", obj, err)
	}
	status, err := l.ReflectStatus(ctx, obj)
	return status, failed("reflecting the status of", obj, err)
}

// Health returns the health of a member object. An object whose kind has no health rule is healthy.
func (i *Interpreter) Health(ctx context.Context, obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	l := i.layerFor(obj.GroupVersionKind(), configv1alpha1.InterpreterOperationInterpretHealth)
	if l == nil {
		return workv1alpha2.ResourceHealthy, nil
	}
	health, err := l.Health(ctx, obj)
	return health, failed("judging the health of", obj, err)
}

// Dependencies returns the objects that an object refers to.
func (i *Interpreter) Dependencies(ctx context.Context, obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	l := i.layerFor(obj.GroupVersionKind(), configv1alpha1.InterpreterOperationInterpretDependency)
	if l == nil {
		return nil, nil
	}
	dependencies, err := l.Dependencies(ctx, obj)
	return dependencies, failed("finding the dependencies of", obj, err)
}

// PlansRollouts reports whether a customization or a webhook describes the rolling updates of a kind: it can read them, and write what a cluster may do.
func (i *Interpreter) PlansRollouts(gvk schema.GroupVersionKind) bool {
	return i.Supports(gvk, configv1alpha1.InterpreterOperationInterpretRollout) && i.Supports(gvk, configv1alpha1.InterpreterOperationReviseRollout)
}

// Rollout returns what an object says about its rolling update, nil if it is not updated step by step or nothing describes how.
func (i *Interpreter) Rollout(ctx context.Context, obj *unstructured.Unstructured) (*configv1alpha1.WorkloadRollout, error) {
	l := i.layerFor(obj.GroupVersionKind(), configv1alpha1.InterpreterOperationInterpretRollout)
	if l == nil {
		return nil, nil
	}
	rollout, err := l.Rollout(ctx, obj)
	return rollout, failed("reading the rollout of", obj, err)
}

// ReviseRollout returns the object with what a cluster may do during its rolling update.
func (i *Interpreter) ReviseRollout(ctx context.Context, obj *unstructured.Unstructured, grant configv1alpha1.RolloutGrant) (*unstructured.Unstructured, error) {
	l := i.layerFor(obj.GroupVersionKind(), configv1alpha1.InterpreterOperationReviseRollout)
	if l == nil {
		return obj, nil
	}
	revised, err := l.ReviseRollout(ctx, obj, grant)
	return revised, failed("setting the bounds of the rollout of", obj, err)
}

// Prune returns a template without the fields that must not be copied to a member. No layer can change it.
func (i *Interpreter) Prune(template *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	pruned, err := native.Prune(template)
	return pruned, failed("pruning", template, err)
}

func failed(doing string, obj *unstructured.Unstructured, err error) error {
	if err == nil {
		return nil
	}
	name := obj.GetName()
	if namespace := obj.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return fmt.Errorf("%s %s %s: %w", doing, obj.GetKind(), name, err)
}
