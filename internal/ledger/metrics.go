package ledger

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	batchSize = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "cellplane_ledger_batch_size", Help: "Number of decisions whose promises were written to a ledger at once.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 10),
	})
	conflicts = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "cellplane_ledger_conflicts_total", Help: "Number of writes to a ledger that another writer overtook.",
	})
	refused = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "cellplane_ledger_refusals_total", Help: "Number of decisions that had no room any more when their promises were made.",
	})
)

// Collectors returns the metrics of ledgers.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{batchSize, conflicts, refused}
}
