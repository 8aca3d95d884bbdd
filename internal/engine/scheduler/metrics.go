package scheduler

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Values of the label "result" of scheduling attempts. A binding that cannot be scheduled is an error.
const (
	resultScheduled = "scheduled"
	resultError     = "error"
)

// Values of the label "schedule_type": why a decision was due.
const (
	reconcileSchedule = "ReconcileSchedule"
	scaleSchedule     = "ScaleSchedule"
)

// planStep is the value of the label "schedule_step". Filters, scores and the division of replicas are one step here.
const planStep = "Plan"

// Values of the label "event" of queued bindings.
const (
	bindingAdded           = "BindingAdd"
	bindingUpdated         = "BindingUpdate"
	scheduleAttemptFailure = "ScheduleAttemptFailure"
)

var (
	attempts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "karmada_scheduler_schedule_attempts_total", Help: "Number of attempts to schedule bindings.",
	}, []string{"result", "schedule_type"})
	algorithmDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "karmada_scheduler_scheduling_algorithm_duration_seconds", Help: "Duration of a scheduling decision.",
		Buckets: slices.Concat([]float64{0.00005, 0.0001, 0.0002, 0.0005}, prometheus.ExponentialBuckets(0.001, 2, 15)), // the latter are Karmada's
	}, []string{"schedule_step"})
	endToEndDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "karmada_scheduler_e2e_scheduling_duration_seconds", Help: "Duration of a scheduling decision including its write.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	}, []string{"result", "schedule_type"})
	incoming = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "karmada_scheduler_queue_incoming_bindings_total", Help: "Number of bindings added to the scheduling queue, by event.",
	}, []string{"event"})
)

// Collectors returns the metrics of the scheduler.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{attempts, algorithmDuration, endToEndDuration, incoming}
}

// observe counts an attempt, unless nothing had to be decided.
func (d *decision) observe(start time.Time) {
	outcome, why := resultScheduled, reconcileSchedule
	switch {
	case d.repeated:
		return
	case d.Failure != nil:
		outcome = resultError
	case !d.made:
		return
	}
	if d.scaled {
		why = scaleSchedule
	}
	observeAttempt(outcome, why, start)
}

func observeAttempt(outcome, why string, start time.Time) {
	attempts.WithLabelValues(outcome, why).Inc()
	endToEndDuration.WithLabelValues(outcome, why).Observe(time.Since(start).Seconds())
}

var pendingBindings = prometheus.NewDesc("scheduler_pending_bindings",
	"Number of bindings to be scheduled: active are in the queue, backoff are tried again soon, unschedulable wait for a change, or for capacity.", []string{"queue"}, nil)

// Describe describes the metrics of one scheduler.
func (s *Scheduler) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- pendingBindings }

// Collect counts the bindings that this scheduler has to schedule.
func (s *Scheduler) Collect(samples chan<- prometheus.Metric) {
	counts := map[string]int{"active": s.queue.Len(), "backoff": 0, "unschedulable": 0}
	s.mu.Lock()
	for key := range s.waitingUnder {
		switch outcome := s.outcomes[key]; {
		case outcome.Failure == nil: // it is scheduled, and would move
		case outcome.retryAfter > 0:
			counts["backoff"]++
		default:
			counts["unschedulable"]++
		}
	}
	s.mu.Unlock()
	for queue, n := range counts {
		samples <- prometheus.MustNewConstMetric(pendingBindings, prometheus.GaugeValue, float64(n), queue)
	}
}
