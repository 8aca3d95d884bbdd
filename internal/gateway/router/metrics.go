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
	sharedStreams = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "cellplane_gateway_shared_watch_streams",
		Help:           "Merged streams that watches share.",
		StabilityLevel: metrics.ALPHA,
	})
	sharedWatches = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "cellplane_gateway_shared_watches",
		Help:           "Watches that read a shared stream.",
		StabilityLevel: metrics.ALPHA,
	})
	outrunWatches = metrics.NewCounter(&metrics.CounterOpts{
		Name:           "cellplane_gateway_shared_watches_outrun_total",
		Help:           "Watches whose clients were too slow for their shared stream, and that were continued by themselves.",
		StabilityLevel: metrics.ALPHA,
	})
	leaseRefusals = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "cellplane_gateway_writer_lease_refusals_total",
		Help:           "Writes that were refused because the gateway did not hold the writer lease: before they were sent, or after.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"stage"})
)

func init() { legacyregistry.MustRegister(Collectors()...) }

// Collectors returns the metrics of this package.
func Collectors() []metrics.Registerable {
	return []metrics.Registerable{leaseRefusals, heldRequests, heldDuration, refusedRequests, earlyEvents, sharedStreams, sharedWatches, outrunWatches}
}
