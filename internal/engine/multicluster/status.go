package multicluster

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	networkingv1alpha1 "github.com/cellplane/cellplane/api/networking/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/endpointslices"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/exposure"
)

// Reasons and messages of conditions of MultiClusterServices, as users know them.
const (
	appliedReason       = "ServiceAppliedSucceed"
	appliedMessage      = "Service is propagated to target clusters."
	notAppliedReason    = "ServiceAppliedFailed"
	dispatchedReason    = "EndpointSliceDispatchedSucceed"
	dispatchedMessage   = "EndpointSlice are dispatched successfully"
	notDispatchedReason = "EndpointSliceDispatchedFailed"
)

// report updates the conditions of a MultiClusterService and records events about it.
func (m *Controller) report(ctx context.Context, shared *exposure.CrossCluster, service cell.Key, result *outcome) error {
	m.reportClusters(shared)
	var conditions []metav1.Condition
	applied := m.serviceApplied(service)
	if applied != nil {
		conditions = append(conditions, *applied)
	}
	switch {
	case result.err != nil && isTransient(result.err):
	case result.err != nil || len(result.problems) > 0:
		conditions = append(conditions, metav1.Condition{
			Type: names.MultiClusterServiceDispatched, Status: metav1.ConditionFalse, Reason: notDispatchedReason, Message: result.message(),
		})
	case len(result.waits) > 0 || applied == nil: // an event follows
	default:
		conditions = append(conditions, metav1.Condition{
			Type: names.MultiClusterServiceDispatched, Status: metav1.ConditionTrue, Reason: dispatchedReason, Message: dispatchedMessage,
		})
	}
	changed, err := m.updateStatus(ctx, shared.Template, conditions)
	if err != nil {
		return err
	}
	about := events.OfTemplate(shared.Template)
	for i := range conditions {
		condition := &conditions[i]
		succeed, fail, done := names.EventSyncServiceSucceed, names.EventSyncServiceFailed, changed
		if condition.Type == names.MultiClusterServiceDispatched {
			succeed, fail, done = names.EventDispatchEndpointSliceSucceed, names.EventDispatchEndpointSliceFailed, result.written > 0
		}
		if condition.Status == metav1.ConditionTrue {
			m.recorder.Also(about, condition.Type, succeed, condition.Message, done)
		} else {
			m.recorder.Failed(about, condition.Type, fail, condition.Message)
		}
	}
	return nil
}

// serviceApplied returns the condition that tells whether the Service is in its clusters, nil if that is not known yet.
func (m *Controller) serviceApplied(service cell.Key) *metav1.Condition {
	not := func(message string) *metav1.Condition {
		return &metav1.Condition{Type: names.MultiClusterServiceApplied, Status: metav1.ConditionFalse, Reason: notAppliedReason, Message: message}
	}
	key := cell.TemplateKey{GroupVersionKind: cell.ServiceKind, Key: service}
	if t := m.cell.Templates.Get(key); t == nil || t.Deleting {
		return not(fmt.Sprintf("the Service %s does not exist; create it", service))
	}
	binding := m.cell.Binding(key.Binding())
	if binding == nil || m.cell.TemplateOf(binding) == nil {
		return nil
	}
	if scheduled := meta.FindStatusCondition(binding.Status.Conditions, names.BindingScheduled); scheduled != nil && scheduled.Status == metav1.ConditionFalse {
		return not(scheduled.Message)
	}
	fully := meta.FindStatusCondition(binding.Status.Conditions, names.BindingFullyApplied)
	switch {
	case fully == nil:
		return nil
	case fully.Status == metav1.ConditionTrue:
		return &metav1.Condition{Type: names.MultiClusterServiceApplied, Status: metav1.ConditionTrue, Reason: appliedReason, Message: appliedMessage}
	default:
		return not(fully.Message)
	}
}

// reportClusters records events about clusters that do not exist or cannot take part.
func (m *Controller) reportClusters(shared *exposure.CrossCluster) {
	about := events.OfTemplate(shared.Template)
	for _, name := range slices.Concat(shared.Providers, shared.Consumers) {
		cluster := m.cell.Clusters.Get(cell.Key{Name: name})
		switch {
		case cluster == nil:
			m.recorder.Failed(about, "cluster:"+name, names.EventClusterNotFound, fmt.Sprintf("cluster %s does not exist; join it, or remove it from the MultiClusterService", name))
		case !servesSlices(cluster):
			m.recorder.Failed(about, "cluster:"+name, names.EventAPIIncompatible, fmt.Sprintf("cluster %s does not serve EndpointSlices; upgrade it", name))
		}
	}
}

// servesSlices reports whether a cluster serves EndpointSlices, as far as known.
func servesSlices(cluster *clusterv1alpha1.Cluster) bool {
	enabled := cluster.Status.APIEnablements
	return len(enabled) == 0 || slices.ContainsFunc(enabled, func(api clusterv1alpha1.APIEnablement) bool {
		return api.GroupVersion == endpointslices.Kind.GroupVersion().String() &&
			slices.ContainsFunc(api.Resources, func(r clusterv1alpha1.APIResource) bool { return r.Kind == endpointslices.Kind.Kind })
	})
}

// updateStatus sets conditions of a MultiClusterService and reports whether that changed them. Others stay.
func (m *Controller) updateStatus(ctx context.Context, t *cell.Template, conditions []metav1.Condition) (bool, error) {
	obj, err := t.Object()
	if err != nil {
		return false, err
	}
	typed := &networkingv1alpha1.MultiClusterService{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, typed); err != nil {
		return false, fmt.Errorf("reading %s: %w", t.Key(), err)
	}
	changed := false
	for _, condition := range conditions {
		condition.ObservedGeneration = t.Generation
		changed = meta.SetStatusCondition(&typed.Status.Conditions, condition) || changed
	}
	if !changed {
		return false, nil
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&typed.Status)
	if err != nil {
		return false, fmt.Errorf("encoding the status of %s: %w", t.Key(), err)
	}
	if err := unstructured.SetNestedMap(obj.Object, status, "status"); err != nil {
		return false, fmt.Errorf("encoding the status of %s: %w", t.Key(), err)
	}
	return true, m.cell.UpdateTemplateStatus(ctx, t, obj)
}
