package tainteviction

import "github.com/prometheus/client_golang/prometheus"

var (
	evictions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "eviction_kind_total", Help: "Number of workloads that were evicted from tainted clusters, by kind.",
	}, []string{"resource_kind"})
	failures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "eviction_processing_errors_total", Help: "Number of evictions from tainted clusters that failed and are tried again, by kind.",
	}, []string{"resource_kind"})
	duration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "eviction_processing_latency_seconds", Help: "Time it takes to evict a workload and to place it elsewhere.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
	})
	waiting = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "cellplane_engine_evictions_held_back_total", Help: "Number of times that an eviction was held back to keep the pace.",
	})
	disruption = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cellplane_engine_region_disruption", Help: "How badly a region does: 0 well, 1 most clusters fail, 2 all of them.",
	}, []string{"region"})
)

// Collectors returns the metrics of the controller.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{evictions, failures, duration, waiting, disruption}
}
