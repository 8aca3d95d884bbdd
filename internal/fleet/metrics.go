package fleet

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var connectionResets = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "cellplane_upstream_connection_resets_total",
	Help:           "Connections to a control plane that were given up because requests on them were not answered.",
	StabilityLevel: metrics.ALPHA,
}, []string{"control_plane"})

func init() {
	legacyregistry.MustRegister(connectionResets)
}
