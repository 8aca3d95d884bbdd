package interpreter

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// Only customizations and webhooks are measured: they may be slow or fail, while built-in kinds take microseconds.
var operationDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name: "cellplane_interpreter_operation_duration_seconds", Help: "Duration of interpreter operations of customizations and webhooks.",
	Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
}, []string{"operation", "by", "result"})

// The values of the label "by".
const (
	byCustomization = "customization"
	byWebhook       = "webhook"
)

// Collectors returns the metrics of interpreters.
func Collectors() []prometheus.Collector { return []prometheus.Collector{operationDuration} }

// measured is a layer whose operations are timed.
type measured struct {
	layer
	by string
}

// observe returns a function that ends the measurement of an operation.
func (m measured) observe(operation configv1alpha1.InterpreterOperation) func(err error) {
	began := time.Now()
	return func(err error) {
		result := "success"
		if err != nil {
			result = "error"
		}
		operationDuration.WithLabelValues(string(operation), m.by, result).Observe(time.Since(began).Seconds())
	}
}

// Replicas implements layer.
func (m measured) Replicas(ctx context.Context, obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error) {
	done := m.observe(configv1alpha1.InterpreterOperationInterpretReplica)
	replicas, requirements, err := m.layer.Replicas(ctx, obj)
	done(err)
	return replicas, requirements, err
}

// Components implements layer.
func (m measured) Components(ctx context.Context, obj *unstructured.Unstructured) ([]workv1alpha2.Component, error) {
	done := m.observe(configv1alpha1.InterpreterOperationInterpretComponent)
	components, err := m.layer.Components(ctx, obj)
	done(err)
	return components, err
}

// ReviseReplica implements layer.
func (m measured) ReviseReplica(ctx context.Context, obj *unstructured.Unstructured, replicas int32) (*unstructured.Unstructured, error) {
	done := m.observe(configv1alpha1.InterpreterOperationReviseReplica)
	revised, err := m.layer.ReviseReplica(ctx, obj, replicas)
	done(err)
	return revised, err
}

// Retain implements layer.
func (m measured) Retain(ctx context.Context, desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	done := m.observe(configv1alpha1.InterpreterOperationRetain)
	retained, err := m.layer.Retain(ctx, desired, observed)
	done(err)
	return retained, err
}

// AggregateStatus implements layer.
func (m measured) AggregateStatus(ctx context.Context, template *unstructured.Unstructured, items []workv1alpha2.AggregatedStatusItem) (*unstructured.Unstructured, error) {
	done := m.observe(configv1alpha1.InterpreterOperationAggregateStatus)
	aggregated, err := m.layer.AggregateStatus(ctx, template, items)
	done(err)
	return aggregated, err
}

// ReflectStatus implements layer.
func (m measured) ReflectStatus(ctx context.Context, obj *unstructured.Unstructured) (*runtime.RawExtension, error) {
	done := m.observe(configv1alpha1.InterpreterOperationInterpretStatus)
	status, err := m.layer.ReflectStatus(ctx, obj)
	done(err)
	return status, err
}

// Health implements layer.
func (m measured) Health(ctx context.Context, obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	done := m.observe(configv1alpha1.InterpreterOperationInterpretHealth)
	health, err := m.layer.Health(ctx, obj)
	done(err)
	return health, err
}

// Dependencies implements layer.
func (m measured) Dependencies(ctx context.Context, obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	done := m.observe(configv1alpha1.InterpreterOperationInterpretDependency)
	dependencies, err := m.layer.Dependencies(ctx, obj)
	done(err)
	return dependencies, err
}

// Rollout implements layer.
func (m measured) Rollout(ctx context.Context, obj *unstructured.Unstructured) (*configv1alpha1.WorkloadRollout, error) {
	done := m.observe(configv1alpha1.InterpreterOperationInterpretRollout)
	rollout, err := m.layer.Rollout(ctx, obj)
	done(err)
	return rollout, err
}

// ReviseRollout implements layer.
func (m measured) ReviseRollout(ctx context.Context, obj *unstructured.Unstructured, grant configv1alpha1.RolloutGrant) (*unstructured.Unstructured, error) {
	done := m.observe(configv1alpha1.InterpreterOperationReviseRollout)
	revised, err := m.layer.ReviseRollout(ctx, obj, grant)
	done(err)
	return revised, err
}
