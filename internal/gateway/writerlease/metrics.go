package writerlease

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	leaseHeld = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "cellplane_gateway_writer_lease_held",
		Help:           "Whether the gateway holds the writer lease: 1 or 0.",
		StabilityLevel: metrics.ALPHA,
	})
	leaseAge = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "cellplane_gateway_writer_lease_age_seconds",
		Help:           "How long ago a majority of the cells and the hub confirmed that the gateway may write.",
		StabilityLevel: metrics.ALPHA,
	})
)

func init() { legacyregistry.MustRegister(Collectors()...) }

// Collectors returns the metrics of this package.
func Collectors() []metrics.Registerable {
	return []metrics.Registerable{leaseHeld, leaseAge}
}
