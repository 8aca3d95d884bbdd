// Package stock lists the metrics of programs that are not ours, as far as alerts and dashboards use them.
package stock

// Metric is a metric of a stock program.
type Metric struct {
	Name      string
	Histogram bool
	Labels    []string
	// Rare ones are not there before something happens.
	Rare bool
}

// Prometheus are those that Prometheus adds for each target.
var Prometheus = []Metric{{Name: "up"}}

// Process are those of every Go program.
var Process = []Metric{
	{Name: "process_resident_memory_bytes"},
	{Name: "process_cpu_seconds_total"},
}

// Etcd are those of etcd.
var Etcd = []Metric{
	{Name: "etcd_server_has_leader"},
	{Name: "etcd_server_leader_changes_seen_total"},
	{Name: "etcd_server_quota_backend_bytes"},
	{Name: "etcd_mvcc_db_total_size_in_bytes"},
	{Name: "etcd_mvcc_db_total_size_in_use_in_bytes"},
	{Name: "etcd_disk_wal_fsync_duration_seconds", Histogram: true},
	{Name: "etcd_disk_backend_commit_duration_seconds", Histogram: true},
}

// FlowControl are those of kube-apiserver and of gateways.
var FlowControl = []Metric{
	{Name: "apiserver_flowcontrol_current_inqueue_requests", Labels: []string{"priority_level", "flow_schema"}, Rare: true},
	{Name: "apiserver_flowcontrol_rejected_requests_total", Labels: []string{"priority_level", "flow_schema", "reason"}, Rare: true},
}

// APIServer are those of kube-apiserver.
var APIServer = []Metric{
	{Name: "apiserver_request_total", Labels: []string{"verb", "code", "resource", "group", "version", "scope", "subresource", "component", "dry_run"}},
	{Name: "apiserver_request_duration_seconds", Histogram: true, Labels: []string{"verb", "resource", "group", "version", "scope", "subresource", "component", "dry_run"}},
}

// TargetLabels are those that the ServiceMonitors of the chart give all metrics. Plane is the hub or a cell, of parts of which each has its own.
var TargetLabels = []string{"namespace", "job", "pod", "plane", "instance", "service", "endpoint", "container"}
