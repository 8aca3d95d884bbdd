package router

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	heldRequests = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "cellplane_gateway_held_requests",
		Help:           "Requests that wait for an object to move, or for a topology to come into force.",
		StabilityLevel: metrics.ALPHA,
	})
	heldDuration = metrics.NewHistogram(&metrics.HistogramOpts{
		Name:           "cellplane_gateway_held_duration_seconds",
		Help:           "How long requests waited for an object or a topology.",
		Buckets:        []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15},
		StabilityLevel: metrics.ALPHA,
	})
	refusedRequests = metrics.NewCounter(&metrics.CounterOpts{
		Name:           "cellplane_gateway_held_refused_total",
		Help:           "Requests that waited too long and were answered with 429.",
		StabilityLevel: metrics.ALPHA,
	})
	earlyEvents = metrics.NewCounter(&metrics.CounterOpts{
		Name:           "cellplane_gateway_early_events_total",
		Help:           "Watch events that belong to a later topology than the gateway has, and were deferred until it arrives.",
		StabilityLevel: metrics.ALPHA,
	})
)

func init() {
	legacyregistry.MustRegister(heldRequests, heldDuration, refusedRequests, earlyEvents)
}
