package autoscale

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
)

// Encode returns the sums of a metric as part of a WorkloadMetrics.
func Encode(metric Metric, s Sums) metricsv1alpha1.MetricSums {
	format := resource.DecimalSI
	if metric.Resource == corev1.ResourceMemory {
		format = resource.BinarySI
	}
	request := func(value int64) *resource.Quantity {
		if metric.Resource == "" {
			return nil
		}
		return resource.NewMilliQuantity(value, format)
	}
	sums := identity(metric)
	sums.Window, sums.PodsWithoutRequest = metav1.Duration{Duration: s.Window}, s.WithoutRequest
	if !s.Time.IsZero() {
		sums.Timestamp = &metav1.Time{Time: s.Time}
	}
	if s.Measured > 0 {
		sums.Measured = metricsv1alpha1.MeasuredPods{Pods: s.Measured, Usage: *resource.NewMilliQuantity(s.Usage, format), Requests: request(s.Requests)}
	}
	if s.Unready > 0 {
		sums.Unready = metricsv1alpha1.UnreadyPods{Pods: s.Unready, Requests: request(s.UnreadyRequests)}
	}
	for _, group := range s.Missing {
		sums.Missing = append(sums.Missing, metricsv1alpha1.MissingPods{Pods: group.Pods, Request: request(group.Request)})
	}
	return sums
}

// EncodeValue returns the value of a metric of an object, or of an external one, in thousandths, as part of a WorkloadMetrics.
func EncodeValue(metric Metric, value int64) metricsv1alpha1.MetricSums {
	sums := identity(metric)
	sums.Value = resource.NewMilliQuantity(value, resource.DecimalSI)
	return sums
}

// EncodeFailure returns why a cluster has no values of a metric, as part of a WorkloadMetrics.
func EncodeFailure(metric Metric, why string) metricsv1alpha1.MetricSums {
	sums := identity(metric)
	sums.Failure = why
	return sums
}

func identity(metric Metric) metricsv1alpha1.MetricSums {
	return metricsv1alpha1.MetricSums{
		Resource: metric.Resource, Container: metric.Container, Name: metric.Name, Selector: metric.Selector, External: metric.External,
		Object: describedBy(metric),
	}
}

// EncodeWanted returns a metric as it is asked for.
func EncodeWanted(metric Metric) metricsv1alpha1.WantedMetric {
	return metricsv1alpha1.WantedMetric{
		Resource: metric.Resource, Container: metric.Container, Name: metric.Name, Selector: metric.Selector, Object: describedBy(metric), External: metric.External,
	}
}

// DecodeWanted returns a metric that is asked for.
func DecodeWanted(m metricsv1alpha1.WantedMetric) Metric {
	return Metric{
		Resource: m.Resource, Container: m.Container, Name: m.Name, Selector: m.Selector, Object: objectOf(m.Object), External: m.External,
	}
}

func describedBy(metric Metric) metricsv1alpha1.DescribedObject {
	return metricsv1alpha1.DescribedObject{APIVersion: metric.Object.APIVersion, Kind: metric.Object.Kind, Name: metric.Object.Name}
}

func objectOf(object metricsv1alpha1.DescribedObject) autoscalingv2.CrossVersionObjectReference {
	return autoscalingv2.CrossVersionObjectReference{APIVersion: object.APIVersion, Kind: object.Kind, Name: object.Name}
}

// Part is what one cluster knows of a metric.
type Part struct {
	// Sums are those of its pods, for a metric of pods.
	Sums
	// Value is in thousandths, for a metric of an object, or an external one.
	Value int64
	// Failure says why the cluster knows nothing.
	Failure string
}

// Decode returns the metric, and what a part of a WorkloadMetrics says about it.
func Decode(sums metricsv1alpha1.MetricSums) (Metric, Part) {
	s := Sums{
		Measured: sums.Measured.Pods, Usage: milliOf(&sums.Measured.Usage), Requests: milliOf(sums.Measured.Requests),
		Unready: sums.Unready.Pods, UnreadyRequests: milliOf(sums.Unready.Requests),
		WithoutRequest: sums.PodsWithoutRequest, Window: sums.Window.Duration,
	}
	if sums.Timestamp != nil {
		s.Time = sums.Timestamp.Time
	}
	for _, group := range sums.Missing {
		s.Missing = addMissing(s.Missing, []Missing{{milliOf(group.Request), group.Pods}})
	}
	metric := Metric{
		Resource: sums.Resource, Container: sums.Container, Name: sums.Name, Selector: sums.Selector, Object: objectOf(sums.Object), External: sums.External,
	}
	return metric, Part{Sums: s, Value: milliOf(sums.Value), Failure: sums.Failure}
}

func milliOf(quantity *resource.Quantity) int64 {
	if quantity == nil {
		return 0
	}
	return quantity.MilliValue()
}
