package descheduler

import "github.com/prometheus/client_golang/prometheus"

var moved = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "cellplane_engine_descheduled_replicas_total", Help: "Number of replicas moved because their pods were unschedulable.",
})

// Collectors returns the metrics of the controller.
func Collectors() []prometheus.Collector { return []prometheus.Collector{moved} }
