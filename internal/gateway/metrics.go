package gateway

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/cellplane/cellplane/internal/expiry"
)

var streamsRefused = metrics.NewCounter(&metrics.CounterOpts{
	Name:           "cellplane_gateway_streams_refused_total",
	Help:           "Watches and other streams that were answered with 429 because their user had as many as --max-streams-per-user.",
	StabilityLevel: metrics.ALPHA,
})

func init() {
	legacyregistry.MustRegister(streamsRefused)
	legacyregistry.RawMustRegister(expiry.Collector())
}
