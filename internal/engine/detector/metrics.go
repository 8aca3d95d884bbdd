package detector

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	matchDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "resource_match_policy_duration_seconds", Help: "Time it takes to find the policy of a template.",
		Buckets: slices.Concat([]float64{0.00001, 0.00004, 0.00016}, prometheus.ExponentialBuckets(0.001, 2, 12)), // the latter are Karmada's
	})
	applyDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "resource_apply_policy_duration_seconds", Help: "Time it takes to apply a policy to a template.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 12),
	}, []string{"result"})
	applyAttempts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "policy_apply_attempts_total", Help: "Number of attempts to apply a policy to a template.",
	}, []string{"result"})
	preemptions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "policy_preemption_total", Help: "Number of attempts of a policy to preempt a template from another.",
	}, []string{"result"})
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
