package tokens

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var reloads = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "cellplane_gateway_authentication_config_reloads_total",
	Help:           "Reloads of the AuthenticationConfiguration, by status: success or failure.",
	StabilityLevel: metrics.ALPHA,
}, []string{"status"})

func init() { legacyregistry.MustRegister(Collectors()...) }

// Collectors returns the metrics of this package.
func Collectors() []metrics.Registerable {
	return []metrics.Registerable{reloads}
}
