package execution

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	syncDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "work_sync_workload_duration_seconds", Help: "Time it takes to apply a Work in its member.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
	}, []string{"member_cluster", "result"})
	openEntries = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cellplane_open_entry_until_timestamp_seconds",
		Help: "Objects in members that are out of the federation's hands, with the time at which that should end; 0 if there is none.",
	}, []string{"member_cluster", "kind", "namespace", "name"})
	reportedDifferences = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cellplane_reported_differences",
		Help: "Fields in which objects in members differ from what the federation wants, for those that it only reports about.",
	}, []string{"member_cluster", "kind", "namespace", "name"})
	createRequests = requestCounter("create_resource_to_cluster", "Number of attempts to create an object in a member.")
	updateRequests = requestCounter("update_resource_to_cluster", "Number of attempts to update an object in a member.")
	deleteRequests = requestCounter("delete_resource_from_cluster", "Number of attempts to delete an object in a member.")
)

func requestCounter(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"result", "member_cluster"})
}

// Collectors returns the metrics of execution.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{syncDuration, createRequests, updateRequests, deleteRequests, openEntries, reportedDifferences}
}

func countRequest(counter *prometheus.CounterVec, cluster string, err error) {
	counter.WithLabelValues(result(err), cluster).Inc()
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}
