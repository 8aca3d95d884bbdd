package failover

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	promotedObjects = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cellplane_failover_promoted_objects_total",
		Help: "Objects of failed cells that were promoted from their copies, by cell.",
	}, []string{"cell"})
	phases = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cellplane_failover_phases_total",
		Help: "Phases that failed cells have reached, by cell and by condition and reason of the Cell.",
	}, []string{"cell", "condition", "reason"})
	promotionSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "cellplane_failover_promotion_seconds",
		Help:    "Duration of promotions that promoted at least one object.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	})
)

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{promotedObjects, phases, promotionSeconds}
}
