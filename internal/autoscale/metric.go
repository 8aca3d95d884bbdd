package autoscale

import (
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metric names a metric of pods, of an object, or an external one. It can be compared.
type Metric struct {
	// Resource is what is used, for a resource metric.
	Resource corev1.ResourceName
	// Container is the one container that counts, for a resource metric. Empty means all.
	Container string

	// Name is that of a metric of the custom or the external metrics API, if it is not a resource metric.
	Name string
	// Selector selects among the series of such a metric, in the form of labels.Selector.
	Selector string
	// Object is what a custom metric describes, if it is not the pods.
	Object autoscalingv2.CrossVersionObjectReference
	// External is set for a metric of the external metrics API.
	External bool
}

// OfPods reports whether each pod has a value of the metric.
func (m Metric) OfPods() bool {
	return !m.External && m.Object == autoscalingv2.CrossVersionObjectReference{}
}

// String names the metric, for messages.
func (m Metric) String() string {
	switch {
	case m.External:
		return "external metric " + m.Name
	case !m.OfPods():
		return m.Object.Kind + " metric " + m.Name
	case m.Container != "":
		return string(m.Resource) + " container resource"
	case m.Resource != "":
		return string(m.Resource) + " resource"
	}
	return "pods metric " + m.Name
}

// MetricOf returns the metric that a metric of an autoscaler is about. It returns false for metrics that are not about
// pods.
func MetricOf(spec autoscalingv2.MetricSpec) (Metric, bool, error) {
	switch {
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		return Metric{Resource: spec.Resource.Name}, true, nil
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		return Metric{Resource: spec.ContainerResource.Name, Container: spec.ContainerResource.Container}, true, nil
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		metric, err := named(spec.Pods.Metric)
		return metric, true, err
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		metric, err := named(spec.Object.Metric)
		metric.Object = spec.Object.DescribedObject
		return metric, false, err
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		metric, err := named(spec.External.Metric)
		metric.External = true
		return metric, false, err
	}
	return Metric{}, false, errNoSource(spec.Type)
}

func named(identifier autoscalingv2.MetricIdentifier) (Metric, error) {
	metric := Metric{Name: identifier.Name}
	if identifier.Selector == nil {
		return metric, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(identifier.Selector)
	if err != nil {
		return metric, fmt.Errorf("selector of metric %s: %w", metric.Name, err)
	}
	metric.Selector = selector.String()
	return metric, nil
}

func errNoSource(kind autoscalingv2.MetricSourceType) error {
	if kind == "" {
		return errors.New("a metric has no type")
	}
	return fmt.Errorf("a metric of type %q has no source of this type", kind)
}
