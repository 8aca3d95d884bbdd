package fleet

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var connectionResets = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "cellplane_upstream_connection_resets_total",
	Help:           "Connections to a control plane that were replaced because requests on them timed out.",
	StabilityLevel: metrics.ALPHA,
}, []string{"control_plane"})

func init() { legacyregistry.MustRegister(Collectors()...) }

// Collectors returns the metrics of this package.
func Collectors() []metrics.Registerable {
	return []metrics.Registerable{connectionResets}
}
