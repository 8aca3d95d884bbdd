package autoscaler

import (
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/autoscale"
)

// Reasons of conditions and events that the decision does not give. They are those of Kubernetes, except for replicasRetained and
// invalidMetricValues.
const (
	succeededGetScale   = "SucceededGetScale"
	failedGetScale      = "FailedGetScale"
	succeededRescale    = "SucceededRescale"
	failedUpdateScale   = "FailedUpdateScale"
	ambiguousSelector   = "AmbiguousSelector"
	replicasRetained    = "ReplicasRetained"
	invalidMetricValues = "InvalidMetricValues"
	successfulRescale   = "SuccessfulRescale"
	failedRescale       = "FailedRescale"
	failedReplicas      = "FailedComputeMetricsReplicas"
)

// metricsPeriod is how often a status is written only because the usage of pods has changed. It does so all the time.
const metricsPeriod = time.Minute

// next returns a copy of the status of an autoscaler that can be changed.
func (s *scaler) next() *autoscalingv2.HorizontalPodAutoscalerStatus {
	status := s.status.DeepCopy()
	status.ObservedGeneration = nil
	if s.generation > 0 {
		status.ObservedGeneration = &s.generation
	}
	return status
}

// set sets a condition. Its time changes with its status only.
func set(status *autoscalingv2.HorizontalPodAutoscalerStatus, c autoscalingv2.HorizontalPodAutoscalerCondition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now)
	for i := range status.Conditions {
		if status.Conditions[i].Type != c.Type {
			continue
		}
		if status.Conditions[i].Status == c.Status {
			c.LastTransitionTime = status.Conditions[i].LastTransitionTime
		}
		status.Conditions[i] = c
		return
	}
	status.Conditions = append(status.Conditions, c)
}

func condition(kind autoscalingv2.HorizontalPodAutoscalerConditionType, is corev1.ConditionStatus, reason, message string) autoscalingv2.HorizontalPodAutoscalerCondition {
	return autoscalingv2.HorizontalPodAutoscalerCondition{Type: kind, Status: is, Reason: reason, Message: message}
}

// decided sets what was decided, before it is written.
func decided(status *autoscalingv2.HorizontalPodAutoscalerStatus, o observation, d autoscale.Decision, now time.Time) {
	set(status, condition(autoscalingv2.AbleToScale, corev1.ConditionTrue, succeededGetScale, "the HPA controller was able to get the target's current scale"), now)
	for _, c := range d.Conditions {
		if c.Type == autoscalingv2.ScalingActive && len(o.silent) > 0 {
			c.Message += "; there are no metrics from " + strings.Join(o.silent, ", ") + ", so the replicas are not lowered"
		}
		if c.Type == autoscalingv2.ScalingActive && len(o.lacking) > 0 {
			c.Message += "; " + some(o.lacking) + ", so the replicas are not lowered"
		}
		set(status, c, now)
	}
	status.CurrentReplicas, status.DesiredReplicas, status.CurrentMetrics = o.workload.Replicas, d.Replicas, d.Metrics
}

// worthWriting reports whether a status has changed by more than usage, or was not written for a while.
func worthWriting(before, now *autoscalingv2.HorizontalPodAutoscalerStatus, written, at time.Time) bool {
	if apiequality.Semantic.DeepEqual(before, now) {
		return false
	}
	if at.Sub(written) >= metricsPeriod || len(before.CurrentMetrics) != len(now.CurrentMetrics) {
		return true
	}
	a, b := *before, *now
	a.CurrentMetrics, b.CurrentMetrics = nil, nil
	return !apiequality.Semantic.DeepEqual(&a, &b)
}
