package durability

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	waitSeconds = metrics.NewHistogram(&metrics.HistogramOpts{
		Name:           "cellplane_gateway_durability_wait_seconds",
		Help:           "How long writes waited for their backup cell.",
		Buckets:        []float64{0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
		StabilityLevel: metrics.ALPHA,
	})
	outcomes = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "cellplane_gateway_durable_writes_total",
		Help:           "Writes that asked for durability, by outcome: confirmed, degraded (acknowledged with a warning), refused (503), unconfirmed (504).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"outcome"})
)

func init() { legacyregistry.MustRegister(Collectors()...) }

// Collectors returns the metrics of this package.
func Collectors() []metrics.Registerable {
	return []metrics.Registerable{waitSeconds, outcomes}
}

// Outcome is how a write that asked for durability ended.
type Outcome string

// The outcomes.
const (
	Confirmed   Outcome = "confirmed"
	Degraded    Outcome = "degraded"
	Refused     Outcome = "refused"
	Unconfirmed Outcome = "unconfirmed"
)

// Count counts a write.
func (o Outcome) Count() { outcomes.WithLabelValues(string(o)).Inc() }
