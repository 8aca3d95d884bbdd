package backup

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	lagSeconds = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cellplane_backup_lag_seconds",
		Help: "Time since the moment for which the backup cell has last proved that it had everything, by pair of cells.",
	}, []string{"cell", "keeper"})
	copySeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "cellplane_backup_copy_seconds",
		Help:    "Time from a write's arrival at the backup controller until its copy is stored, by pair of cells.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2, 5, 10, 30, 60},
	}, []string{"cell", "keeper"})
	copiedKeys = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cellplane_backup_copied_keys_total",
		Help: "Keys that were copied or removed, by pair of cells.",
	}, []string{"cell", "keeper"})
	pendingKeys = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cellplane_backup_pending_keys",
		Help: "Keys that have changed since they were copied, by pair of cells.",
	}, []string{"cell", "keeper"})
)

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{lagSeconds, copySeconds, copiedKeys, pendingKeys}
}
