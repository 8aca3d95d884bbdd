package metriclist

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// prefix begins the names of the metrics that are our own.
const prefix = "cellplane_"

// ofKubernetes begins the names of metrics of the engine's queues, which are those of all queues of client-go.
const ofKubernetes = "workqueue_"

// ofKarmada are metrics with the names that they have in Karmada, so that its dashboards and alerts can be used. Only these may break the conventions.
var ofKarmada = []string{
	"binding_sync_work_duration_seconds", "cluster_cpu_allocatable_number", "cluster_cpu_allocated_number", "cluster_memory_allocatable_bytes",
	"cluster_memory_allocated_bytes", "cluster_node_number", "cluster_pod_allocatable_number", "cluster_pod_allocated_number", "cluster_ready_node_number",
	"cluster_ready_state", "cluster_sync_status_duration_seconds", "create_resource_to_cluster", "cronfederatedhpa_process_duration_seconds", "cronfederatedhpa_rule_process_duration_seconds",
	"delete_resource_from_cluster", "eviction_kind_total", "eviction_processing_latency_seconds", "eviction_processing_total", "eviction_queue_depth",
	"federatedhpa_process_duration_seconds", "karmada_scheduler_e2e_scheduling_duration_seconds",
	"karmada_scheduler_queue_incoming_bindings_total", "karmada_scheduler_schedule_attempts_total", "karmada_scheduler_scheduling_algorithm_duration_seconds",
	"policy_apply_attempts_total", "policy_preemption_total", "resource_apply_policy_duration_seconds", "resource_match_policy_duration_seconds",
	"scheduler_pending_bindings", "update_resource_to_cluster", "work_sync_workload_duration_seconds",
}

// labels are all labels, with what bounds the number of their values. None is the name of an object that users create.
var labels = map[string]string{
	"apiversion":      "group versions of kinds",
	"action":          "what a write does: create, update, delete",
	"backend":         "addresses of a search engine, as ResourceRegistries name them",
	"by":              "what interprets: customization, webhook",
	"cell":            "cells, and `hub`",
	"cluster":         "clusters",
	"code":            "status codes of HTTP that are known, other, aborted",
	"condition":       "conditions of Cells",
	"control_plane":   "cells, and `hub`",
	"event":           "events that enqueue bindings",
	"file":            "files that the flags of the part name",
	"keeper":          "cells that keep the backup of another",
	"kind":            "kinds, or reading, mutating and long-running",
	"member_cluster":  "clusters",
	"name":            "queues of a part",
	"namespace":       "namespaces, only of objects that are out of the federation's hands or differ",
	"of":              "topology, cells",
	"operationResult": "updated, none",
	"operation":       "operations of interpreters, or of indexes",
	"outcome":         "confirmed, degraded, refused, unconfirmed",
	"phase":           "phases of the topology",
	"purpose":         "what a certificate is for",
	"reason":          "reasons of conditions of Cells",
	"queue":           "active, backoff, unschedulable",
	"recreate":        "false",
	"region":          "regions of clusters",
	"resource":        "resources",
	"resource_kind":   "kinds",
	"result":          "success or error, or what became of an attempt",
	"schedule_step":   "steps of a decision",
	"schedule_type":   "what a binding is scheduled for",
	"stage":           "before or after a write was sent",
	"state":           "moved, moving, waiting",
	"status":          "status of a condition, or success and failure",
	"step":            "steps of a move",
	"verb":            "verbs of Kubernetes, nonresource, other",
}

const head = `# Metrics

Generated from what the parts register by ` + "`make generate`" + `; do not edit. [operations.md](operations.md#metrics) says where they are served, and how Prometheus reads
them, with alerts and dashboards.

All parts also have the metrics of their Go process (` + "`go_…`, `process_…`" + `). The hub manager and agents have those of controller-runtime, and gateways have some of
k8s.io/apiserver, such as those of flow control (` + "`apiserver_flowcontrol_…`" + `). Metrics begin with ` + "`cellplane_`" + `, are in seconds and bytes, and
counters end in ` + "`_total`" + `. None may be relied on to stay as it is before version 1.0.
`

// Page returns docs/metrics.md.
func Page() ([]byte, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	page.WriteString(head)
	table := func(title, text string, in func(Metric) bool) {
		fmt.Fprintf(&page, "\n## %s\n\n%s| metric | type | labels | of | |\n|---|---|---|---|---|\n", title, text)
		for _, m := range all {
			if in(m) {
				fmt.Fprintf(&page, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Type, strings.Join(m.Labels, ", "), strings.Join(m.Parts, ", "), strings.ReplaceAll(m.Help, "|", `\|`))
			}
		}
	}
	karmada := func(m Metric) bool { return slices.Contains(ofKarmada, m.Name) }
	kubernetes := func(m Metric) bool { return strings.HasPrefix(m.Name, ofKubernetes) }
	table("Of Cellplane", "", func(m Metric) bool { return !karmada(m) && !kubernetes(m) })
	table("With the names of Karmada", "They have the names that they have in Karmada, also where these break the conventions.\n\n", karmada)
	table("With the names of client-go", "Those of all queues of the engine and the agent, by the name of the queue. Those of the hub manager are controller-runtime's.\n\n", kubernetes)
	page.WriteString("\n## Labels\n\n| label | values |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&page, "| %s | %s |\n", name, labels[name])
	}
	return page.Bytes(), nil
}
