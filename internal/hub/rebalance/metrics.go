package rebalance

import (
	"github.com/prometheus/client_golang/prometheus"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

var (
	steps = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "cellplane", Subsystem: "rebalance", Name: "steps_total",
		Help: "Steps taken with objects that move between cells, by step; an object has moved when it is activated, and steps whose answer was lost are not counted.",
	}, []string{"step"})
	failures = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "cellplane", Subsystem: "rebalance", Name: "slot_failures_total",
		Help: "Failed attempts to move the objects of a slot, which are retried.",
	})
	attempts = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "cellplane", Subsystem: "topology", Name: "failures_total",
		Help: "Failed attempts to reconcile the topology, which are retried.",
	})
	objects = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "cellplane", Subsystem: "rebalance", Name: "objects",
		Help: "Objects of the current or last change, by state: moved, moving or waiting.",
	}, []string{"state"})
	phases = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "cellplane", Subsystem: "topology", Name: "phase",
		Help: "1 for the current phase of the topology.",
	}, []string{"phase"})
	epochs = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "cellplane", Subsystem: "topology", Name: "epoch",
		Help: "The epoch of the topology, and the one that all cells enforce.",
	}, []string{"of"})
	removedStale = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "cellplane", Subsystem: "rebalance", Name: "leftovers_removed_total",
		Help: "Stale copies removed from the former cells of objects.",
	})
)

// observeMove sets the metrics of a change.
func observeMove(change *cellplanev1alpha1.TopologyChange, moving int64) {
	// Some objects of a slot that is moving have already moved.
	moving = min(moving, change.TotalObjects-change.MovedObjects)
	objects.WithLabelValues("moved").Set(float64(change.MovedObjects))
	objects.WithLabelValues("moving").Set(float64(moving))
	objects.WithLabelValues("waiting").Set(float64(change.TotalObjects - change.MovedObjects - moving))
}

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{steps, failures, attempts, objects, phases, epochs, removedStale}
}
