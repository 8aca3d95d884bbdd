package binding

import "github.com/prometheus/client_golang/prometheus"

var syncDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name: "binding_sync_work_duration_seconds", Help: "Time it takes to update the Works of a binding.",
	Buckets: prometheus.ExponentialBuckets(0.001, 2, 12),
}, []string{"result"})

var commands = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "cellplane_engine_rollout_commands_total", Help: "Commands to clusters in rollouts that are planned for all clusters together.",
})

// Collectors returns the metrics of the controller.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{syncDuration, commands, rolloutWaits}
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}
