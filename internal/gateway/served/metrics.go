package served

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var refused = metrics.NewCounter(&metrics.CounterOpts{
	Name:           "cellplane_gateway_not_served_total",
	Help:           "Requests that were answered with 404 or 405 because no ServedAPI of their user lists the resource or the verb.",
	StabilityLevel: metrics.ALPHA,
})

func init() { legacyregistry.MustRegister(Collectors()...) }

// Collectors returns the metrics of this package.
func Collectors() []metrics.Registerable {
	return []metrics.Registerable{refused}
}
