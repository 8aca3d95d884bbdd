package eviction

import "github.com/prometheus/client_golang/prometheus"

var ended = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "cellplane_engine_evictions_ended_total", Help: "Number of evictions whose old copy was removed.",
})

// Collectors returns the metrics of the controller.
func Collectors() []prometheus.Collector { return []prometheus.Collector{ended} }
