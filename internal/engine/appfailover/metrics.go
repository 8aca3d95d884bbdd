package appfailover

import "github.com/prometheus/client_golang/prometheus"

var failovers = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "cellplane_engine_application_failovers_total", Help: "Number of evictions of unhealthy workloads from a cluster.",
})

// Collectors returns the metrics of the controller.
func Collectors() []prometheus.Collector { return []prometheus.Collector{failovers} }
