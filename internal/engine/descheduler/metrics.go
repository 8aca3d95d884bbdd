package descheduler

import "github.com/prometheus/client_golang/prometheus"

var moved = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "cellplane_engine_descheduled_replicas_total", Help: "Number of replicas that were moved because their pods found no node.",
})

// Collectors returns the metrics of the controller.
func Collectors() []prometheus.Collector { return []prometheus.Collector{moved} }
