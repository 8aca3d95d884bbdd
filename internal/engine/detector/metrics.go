package detector

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	matchDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "resource_match_policy_duration_seconds", Help: "Time it takes to find the policy of a template.",
		Buckets: prometheus.ExponentialBuckets(0.00001, 4, 10),
	})
	applyDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "resource_apply_policy_duration_seconds", Help: "Time it takes to apply a policy to a template.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 12),
	}, []string{"result"})
	applyAttempts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "policy_apply_attempts_total", Help: "Number of attempts to apply a policy to a template.",
	}, []string{"result"})
	preemptions = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "policy_preemption_total", Help: "Number of templates that a policy preempted from another.",
	})
)

// Collectors returns the metrics of the detector.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{matchDuration, applyDuration, applyAttempts, preemptions}
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}
