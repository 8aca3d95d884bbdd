package autoscaler

import (
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "github.com/cellplane/cellplane/api/autoscaling/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// The kinds of autoscalers.
var (
	plainKind     = autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler")
	federatedKind = autoscalingv1alpha1.GroupVersion.WithKind("FederatedHPA")
)

// target is what an autoscaler scales. Its version does not matter.
type target struct {
	schema.GroupKind
	cell.Key
}

// String returns kind and name, for messages.
func (t target) String() string { return t.Kind + " " + t.Key.String() }

// scaler is an autoscaler of either kind. It is not changed.
type scaler struct {
	id
	uid        types.UID
	created    time.Time
	version    string
	generation int64
	target     target
	// apiVersion is that of the target, as the autoscaler says.
	apiVersion string
	// values is how the values that clusters have of an object become one.
	values string
	spec   *autoscalingv2.HorizontalPodAutoscalerSpec
	status *autoscalingv2.HorizontalPodAutoscalerStatus
}

// id identifies an autoscaler.
type id struct {
	schema.GroupVersionKind
	cell.Key
}

// String returns kind and name, for messages.
func (i id) String() string { return i.Kind + " " + i.Key.String() }

// scalerOf returns an autoscaler that acts in the federation; false if the object is none, or a policy propagates it.
func scalerOf(obj runtime.Object) (*scaler, bool) {
	switch a := obj.(type) {
	case *autoscalingv2.HorizontalPodAutoscaler:
		if !cell.ClaimOf(a.Labels, a.Annotations).Empty() {
			return nil, false
		}
		return newScaler(plainKind, a, &a.Spec, &a.Status)
	case *autoscalingv1alpha1.FederatedHPA:
		spec := &autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: a.Spec.ScaleTargetRef, MinReplicas: a.Spec.MinReplicas, MaxReplicas: a.Spec.MaxReplicas, Metrics: a.Spec.Metrics, Behavior: a.Spec.Behavior,
		}
		return newScaler(federatedKind, a, spec, &a.Status)
	}
	return nil, false
}

func newScaler(kind schema.GroupVersionKind, obj client.Object, spec *autoscalingv2.HorizontalPodAutoscalerSpec, status *autoscalingv2.HorizontalPodAutoscalerStatus) (*scaler, bool) {
	ref := spec.ScaleTargetRef
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || obj.GetDeletionTimestamp() != nil {
		return nil, false
	}
	return &scaler{
		id:  id{kind, cell.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}},
		uid: obj.GetUID(), created: obj.GetCreationTimestamp().Time, version: obj.GetResourceVersion(), generation: obj.GetGeneration(), apiVersion: ref.APIVersion, values: obj.GetAnnotations()[names.MetricValuesAnnotation], spec: spec, status: status,
		target: target{gv.WithKind(ref.Kind).GroupKind(), cell.Key{Namespace: obj.GetNamespace(), Name: ref.Name}},
	}, true
}

// reference refers to the autoscaler, for events.
func (s *scaler) reference() *corev1.ObjectReference {
	apiVersion, kind := s.ToAPIVersionAndKind()
	return &corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: s.Namespace, Name: s.Name, UID: s.uid, ResourceVersion: s.version}
}

// condition returns a condition of the status, nil if it has none of this type.
func (s *scaler) condition(of autoscalingv2.HorizontalPodAutoscalerConditionType) *autoscalingv2.HorizontalPodAutoscalerCondition {
	for i := range s.status.Conditions {
		if s.status.Conditions[i].Type == of {
			return &s.status.Conditions[i]
		}
	}
	return nil
}

func listOf(kind schema.GroupVersionKind) client.ObjectList {
	if kind == plainKind {
		return &autoscalingv2.HorizontalPodAutoscalerList{}
	}
	return &autoscalingv1alpha1.FederatedHPAList{}
}

func keyOf(obj metav1.Object) cell.Key {
	return cell.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}
