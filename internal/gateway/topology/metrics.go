package topology

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var topologyEpoch = metrics.NewGauge(&metrics.GaugeOpts{
	Name:           "cellplane_gateway_topology_epoch",
	Help:           "The epoch of the topology that requests are routed by.",
	StabilityLevel: metrics.ALPHA,
})

func init() { legacyregistry.MustRegister(Collectors()...) }

// Collectors returns the metrics of this package.
func Collectors() []metrics.Registerable {
	return []metrics.Registerable{topologyEpoch}
}
