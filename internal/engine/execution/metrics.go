package execution

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellplane/cellplane/internal/engine/cell"
)

var (
	syncDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "work_sync_workload_duration_seconds", Help: "Time it takes to apply a Work in its member.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
	}, []string{"result"})
	// Values are when entries should be closed, 0 if that is not known.
	openEntries = newTally(
		tallied{prometheus.NewDesc("cellplane_open_entries", "Objects in members that are out of the federation's hands.", groupLabels, nil), count},
		tallied{prometheus.NewDesc("cellplane_open_entry_until_timestamp_seconds",
			"When the first of the objects that are out of the federation's hands should be given back, in seconds since 1970; 0 if no time is set.", groupLabels, nil), earliest},
	)
	// Values are numbers of fields.
	reportedDifferences = newTally(tallied{prometheus.NewDesc("cellplane_reported_differences",
		"Fields in which objects in members differ from what the federation wants, for those that it only reports about.", groupLabels, nil), sum})
	createRequests = requestCounter("create_resource_to_cluster", "Number of attempts to create an object in a member; the label recreate is always false, as in Karmada.", "recreate")
	updateRequests = requestCounter("update_resource_to_cluster", "Number of attempts to update an object in a member; the label operationResult is updated, or none after an error.", "operationResult")
	deleteRequests = requestCounter("delete_resource_from_cluster", "Number of attempts to delete an object in a member.")
)

// requestCounter counts requests to members, by the labels that Karmada has and further ones.
func requestCounter(name, help string, more ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, slices.Concat([]string{"result", "apiversion", "kind", "member_cluster"}, more))
}

// Collectors returns the metrics of execution.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{syncDuration, createRequests, updateRequests, deleteRequests, openEntries, reportedDifferences}
}

func countCreate(object *cell.Object, cluster string, err error) {
	createRequests.WithLabelValues(append(requestLabels(object, cluster, err), "false")...).Inc()
}

func countUpdate(object *cell.Object, cluster string, err error) {
	outcome := "updated"
	if err != nil {
		outcome = "none"
	}
	updateRequests.WithLabelValues(append(requestLabels(object, cluster, err), outcome)...).Inc()
}

func countDelete(object *cell.Object, cluster string, err error) {
	deleteRequests.WithLabelValues(requestLabels(object, cluster, err)...).Inc()
}

func requestLabels(object *cell.Object, cluster string, err error) []string {
	apiVersion, kind := object.ToAPIVersionAndKind()
	return []string{result(err), apiVersion, kind, cluster}
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}
