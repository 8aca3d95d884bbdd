package replicate

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	writes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cellplane_replication_writes_total",
		Help: "Writes to a cell by resource, action and result (success, retry or error).",
	}, []string{"cell", "resource", "action", "result"})
	writeSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "cellplane_replication_write_duration_seconds",
		Help:    "Duration of writes to a cell.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
	}, []string{"cell"})

	lagDesc       = prometheus.NewDesc("cellplane_replication_lag_seconds", "Age of the oldest change of the hub that a cell has not confirmed.", []string{"cell"}, nil)
	pendingDesc   = prometheus.NewDesc("cellplane_replication_pending_objects", "Objects that changed on the hub and have not been confirmed by a cell.", []string{"cell"}, nil)
	obstaclesDesc = prometheus.NewDesc("cellplane_replication_obstacles", "Objects in a cell that cannot be copied or removed, or are not copies.", []string{"cell"}, nil)
	contactDesc   = prometheus.NewDesc("cellplane_replication_following", "Whether a cell gets changes as they happen.", []string{"cell"}, nil)
)

func observe(cell string, rule *Rule, action Action, began time.Time, err error) {
	result := "success"
	switch {
	case err != nil && isStale(err):
		result = "retry"
	case err != nil:
		result = "error"
	}
	writes.WithLabelValues(cell, rule.Resource.Resource, string(action), result).Inc()
	writeSeconds.WithLabelValues(cell).Observe(time.Since(began).Seconds())
}

var _ prometheus.Collector = &Replicator{}

// Describe names the metrics of a Replicator.
func (r *Replicator) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{lagDesc, pendingDesc, obstaclesDesc, contactDesc} {
		descriptions <- description
	}
	writes.Describe(descriptions)
	writeSeconds.Describe(descriptions)
}

// Collect returns the metrics of a Replicator.
func (r *Replicator) Collect(metrics chan<- prometheus.Metric) {
	for cell, status := range r.Status() {
		following := 0.0
		if status.Phase == Following {
			following = 1
		}
		for description, value := range map[*prometheus.Desc]float64{
			contactDesc: following, lagDesc: status.Lag.Seconds(), pendingDesc: float64(status.Pending), obstaclesDesc: float64(len(status.Obstacles)),
		} {
			metrics <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, value, cell)
		}
	}
	writes.Collect(metrics)
	writeSeconds.Collect(metrics)
}
