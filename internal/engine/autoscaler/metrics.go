package autoscaler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var processDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name: "federatedhpa_process_duration_seconds", Help: "Time it takes to decide about the replicas of a target, to scale it and to write the status of its autoscaler.",
	Buckets: prometheus.ExponentialBuckets(0.01, 2, 12),
}, []string{"result"})

// Collectors returns the metrics of the autoscaler.
func Collectors() []prometheus.Collector { return []prometheus.Collector{processDuration} }

func observeProcess(start, end time.Time, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	processDuration.WithLabelValues(result).Observe(end.Sub(start).Seconds())
}
