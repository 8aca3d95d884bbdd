package autoscale

import (
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
	sums := metricsv1alpha1.MetricSums{
		Resource: metric.Resource, Container: metric.Container, Name: metric.Name, Selector: metric.Selector,
		Window: metav1.Duration{Duration: s.Window}, PodsWithoutRequest: s.WithoutRequest,
	}
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

// Decode returns the metric and sums of a part of a WorkloadMetrics.
func Decode(sums metricsv1alpha1.MetricSums) (Metric, Sums) {
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
	return Metric{Resource: sums.Resource, Container: sums.Container, Name: sums.Name, Selector: sums.Selector}, s
}

func milliOf(quantity *resource.Quantity) int64 {
	if quantity == nil {
		return 0
	}
	return quantity.MilliValue()
}
