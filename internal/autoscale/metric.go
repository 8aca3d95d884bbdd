package autoscale

import (
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metric names a metric that each pod has a value of. It can be compared.
type Metric struct {
	// Resource is what is used, for a resource metric.
	Resource corev1.ResourceName
	// Container is the one container that counts, for a resource metric. Empty means all.
	Container string

	// Name is that of a metric of the custom metrics API, if it is not a resource metric.
	Name string
	// Selector selects among the series of a custom metric, in the form of labels.Selector.
	Selector string
}

// MetricOf returns the metric that each pod is asked for by a metric of an autoscaler. It returns false for metrics that
// are not about pods.
func MetricOf(spec autoscalingv2.MetricSpec) (Metric, bool, error) {
	switch {
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		return Metric{Resource: spec.Resource.Name}, true, nil
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		return Metric{Resource: spec.ContainerResource.Name, Container: spec.ContainerResource.Container}, true, nil
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		metric := Metric{Name: spec.Pods.Metric.Name}
		if spec.Pods.Metric.Selector != nil {
			selector, err := metav1.LabelSelectorAsSelector(spec.Pods.Metric.Selector)
			if err != nil {
				return Metric{}, true, fmt.Errorf("selector of metric %s: %w", metric.Name, err)
			}
			metric.Selector = selector.String()
		}
		return metric, true, nil
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil, spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		return Metric{}, false, nil
	}
	return Metric{}, false, errNoSource(spec.Type)
}

func errNoSource(kind autoscalingv2.MetricSourceType) error {
	if kind == "" {
		return errors.New("a metric has no type")
	}
	return fmt.Errorf("a metric of type %q has no source of this type", kind)
}
