package tainteviction

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// The value of the label "name" says whether the workloads are namespaced. Karmada has a queue for each.
const (
	namespacedQueue = "binding-eviction"
	clusterQueue    = "cluster-binding-eviction"
)

var (
	processed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "eviction_processing_total", Help: "Number of attempts to evict a workload from tainted clusters.",
	}, []string{"name", "result"})
	duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "eviction_processing_latency_seconds", Help: "Duration of an eviction including rescheduling.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	}, []string{"name"})
	heldBack = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "cellplane_engine_evictions_held_back_total", Help: "Number of evictions delayed by the rate limit.",
	})
	disruption = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cellplane_engine_region_disruption", Help: "Disruption of a region: 0 normal, 1 most clusters fail, 2 all clusters fail.",
	}, []string{"region"})
)

// Collectors returns the metrics of the controller.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{processed, duration, heldBack, disruption}
}

func record(key cell.Key, err error, took time.Duration) {
	name, result := queueOf(key), "success"
	if err != nil {
		result = "error"
	}
	processed.WithLabelValues(name, result).Inc()
	duration.WithLabelValues(name).Observe(took.Seconds())
}

func queueOf(key cell.Key) string {
	if key.Namespace == "" {
		return clusterQueue
	}
	return namespacedQueue
}

var (
	queueDepth = prometheus.NewDesc("eviction_queue_depth", "Number of workloads that wait for their eviction from tainted clusters.", []string{"name"}, nil)
	queueKinds = prometheus.NewDesc("eviction_kind_total", "Number of workloads that wait for their eviction from a tainted cluster, by kind.", []string{"member_cluster", "resource_kind"}, nil)
)

// Describe describes the metrics of one controller.
func (t *Controller) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- queueDepth
	descriptions <- queueKinds
}

// Collect counts the workloads that wait.
func (t *Controller) Collect(samples chan<- prometheus.Metric) {
	depth := map[string]int{namespacedQueue: 0, clusterQueue: 0}
	type labels struct{ cluster, kind string }
	kinds := map[labels]int{}
	t.mu.Lock()
	keys := slices.Collect(maps.Keys(t.waiting))
	t.mu.Unlock()
	for _, key := range keys {
		binding := t.cell.Binding(key)
		if binding == nil || binding.Labels[names.RebalanceStatusLabel] != "" || binding.Spec.Placement == nil {
			continue
		}
		leaving, _ := t.leaving(binding)
		if len(leaving) == 0 {
			continue
		}
		depth[queueOf(key)]++
		for _, e := range leaving {
			kinds[labels{e.cluster.Name, binding.Spec.Resource.Kind}]++
		}
	}
	for name, n := range depth {
		samples <- prometheus.MustNewConstMetric(queueDepth, prometheus.GaugeValue, float64(n), name)
	}
	for of, n := range kinds {
		samples <- prometheus.MustNewConstMetric(queueKinds, prometheus.GaugeValue, float64(n), of.cluster, of.kind)
	}
}
