package rebalance

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

var (
	steps = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "cellplane", Subsystem: "rebalance", Name: "steps_total",
		Help: "Steps taken by objects that move between cells, by step. An object has moved when it is activated. A step whose answer was lost is not counted.",
	}, []string{"step"})
	failures = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "cellplane", Subsystem: "rebalance", Name: "slot_failures_total",
		Help: "Attempts to move the objects of a slot that failed and were repeated.",
	})
	attempts = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "cellplane", Subsystem: "topology", Name: "failures_total",
		Help: "Attempts to follow the topology that failed and were repeated.",
	})
	objects = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "cellplane", Subsystem: "rebalance", Name: "objects",
		Help: "Objects of the change under way, or else of the last one, by whether they have moved, are moving or wait.",
	}, []string{"state"})
	phases = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "cellplane", Subsystem: "topology", Name: "phase",
		Help: "1 for the phase in which the topology is.",
	}, []string{"phase"})
	epochs = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "cellplane", Subsystem: "topology", Name: "epoch",
		Help: "The epoch of the topology, and the one that all cells insist on.",
	}, []string{"of"})
	leftovers = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "cellplane", Subsystem: "rebalance", Name: "leftovers_removed_total",
		Help: "Objects removed from cells that they had left.",
	})
)

// observeMove has the metrics tell how far a change is.
func observeMove(change *cellplanev1alpha1.TopologyChange, moving int64) {
	// What moves has moved, in part: a slot is under way until the last of its objects has arrived.
	moving = min(moving, change.TotalObjects-change.MovedObjects)
	objects.WithLabelValues("moved").Set(float64(change.MovedObjects))
	objects.WithLabelValues("moving").Set(float64(moving))
	objects.WithLabelValues("waiting").Set(float64(change.TotalObjects - change.MovedObjects - moving))
}

func init() {
	metrics.Registry.MustRegister(steps, failures, attempts, objects, phases, epochs, leftovers)
}
