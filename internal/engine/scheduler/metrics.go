package scheduler

import "github.com/prometheus/client_golang/prometheus"

// Values of the label "result" of scheduling attempts.
const (
	resultScheduled     = "scheduled"
	resultUnschedulable = "unschedulable"
	resultError         = "error"
)

var (
	attempts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "karmada_scheduler_schedule_attempts_total", Help: "Number of attempts to schedule bindings.",
	}, []string{"result"})
	algorithmDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "karmada_scheduler_scheduling_algorithm_duration_seconds", Help: "Duration of a scheduling decision.",
		Buckets: prometheus.ExponentialBuckets(0.00005, 2, 16),
	})
	endToEndDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "karmada_scheduler_e2e_scheduling_duration_seconds", Help: "Duration of a scheduling decision including its write.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
	})
	incoming = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "karmada_scheduler_queue_incoming_bindings_total", Help: "Number of bindings added to the scheduling queue, by event.",
	}, []string{"event"})
)

// Collectors returns the metrics of the scheduler.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{attempts, algorithmDuration, endToEndDuration, incoming}
}

func resultOf(outcome *Outcome) string {
	if outcome.Failure != nil {
		return resultUnschedulable
	}
	return resultScheduled
}
