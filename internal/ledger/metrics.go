package ledger

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	batchSize = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "cellplane_ledger_batch_size", Help: "Number of decisions whose reservations were written to a ledger in one write.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 10),
	})
	conflicts = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "cellplane_ledger_conflicts_total", Help: "Number of conflicting writes to a ledger.",
	})
	refused = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "cellplane_ledger_refusals_total", Help: "Number of decisions refused because the capacity was taken.",
	})
)

// Collectors returns the metrics of ledgers.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{batchSize, conflicts, refused}
}
