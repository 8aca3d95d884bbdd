package tokens

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var reloads = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "cellplane_gateway_authentication_config_reloads_total",
	Help:           "Changes of the AuthenticationConfiguration that were taken (success) or refused (failure).",
	StabilityLevel: metrics.ALPHA,
}, []string{"status"})

func init() {
	legacyregistry.MustRegister(reloads)
}
