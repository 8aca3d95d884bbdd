package cronscaler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	processDuration = duration("cronfederatedhpa_process_duration_seconds", "Time it takes to run the rules of a CronFederatedHPA that are due, and to write its status.")
	ruleDuration    = duration("cronfederatedhpa_rule_process_duration_seconds", "Time it takes to run a rule of a CronFederatedHPA.")
)

func duration(name, help string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2, 12)}, []string{"result"})
}

// Collectors returns the metrics of the controller.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{processDuration, ruleDuration}
}

func observe(histogram *prometheus.HistogramVec, took time.Duration, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	histogram.WithLabelValues(result).Observe(took.Seconds())
}
