package gateway

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/cellplane/cellplane/internal/expiry"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/durability"
	"github.com/cellplane/cellplane/internal/gateway/router"
	"github.com/cellplane/cellplane/internal/gateway/served"
	"github.com/cellplane/cellplane/internal/gateway/tokens"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/gateway/writerlease"
	"github.com/cellplane/cellplane/internal/limits"
)

// metricsPrefix begins the names of the metrics of the memory budget.
const metricsPrefix = "cellplane_gateway"

var streamsRefused = metrics.NewCounter(&metrics.CounterOpts{
	Name:           "cellplane_gateway_streams_refused_total",
	Help:           "Watches and other streams that were answered with 429 because their user had as many as --max-streams-per-user.",
	StabilityLevel: metrics.ALPHA,
})

var (
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cellplane_gateway_requests_total", Help: "Requests that were answered, by verb and status.",
	}, []string{"verb", "code"})
	requestDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "cellplane_gateway_request_duration_seconds", Help: "Time until a request was answered, without watches and other long-running requests.",
		Buckets: []float64{0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"verb"})
	requestsInProgress = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cellplane_gateway_requests_in_progress", Help: "Requests that are not answered yet, by kind: reading, mutating or long-running.",
	}, []string{"kind"})
)

// Collectors returns the metrics of a gateway, for their documentation.
func Collectors() []prometheus.Collector {
	all := []prometheus.Collector{requests, requestDuration, requestsInProgress, streamsRefused, expiry.Collector(), limits.NewCollector(metricsPrefix, nil)}
	for _, group := range [][]metrics.Registerable{
		router.Collectors(), durability.Collectors(), served.Collectors(), tokens.Collectors(), topology.Collectors(), writerlease.Collectors(), fleet.Collectors(),
	} {
		for _, collector := range group {
			all = append(all, collector)
		}
	}
	return all
}

func init() {
	legacyregistry.MustRegister(streamsRefused)
	legacyregistry.RawMustRegister(requests, requestDuration, requestsInProgress, expiry.Collector())
}
