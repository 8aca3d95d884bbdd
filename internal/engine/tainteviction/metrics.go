package tainteviction

import "github.com/prometheus/client_golang/prometheus"

var (
	evictions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "eviction_kind_total", Help: "Number of workloads evicted from tainted clusters, by kind.",
	}, []string{"resource_kind"})
	failures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "eviction_processing_errors_total", Help: "Number of failed evictions from tainted clusters that are retried, by kind.",
	}, []string{"resource_kind"})
	duration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "eviction_processing_latency_seconds", Help: "Duration of an eviction including rescheduling.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
	})
	waiting = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "cellplane_engine_evictions_held_back_total", Help: "Number of evictions delayed by the rate limit.",
	})
	disruption = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cellplane_engine_region_disruption", Help: "Disruption of a region: 0 normal, 1 most clusters fail, 2 all clusters fail.",
	}, []string{"region"})
)

// Collectors returns the metrics of the controller.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{evictions, failures, duration, waiting, disruption}
}
