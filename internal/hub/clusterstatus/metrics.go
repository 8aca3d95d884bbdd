package clusterstatus

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

const memberLabel = "member_cluster"

var (
	readyState      = gauge("cluster_ready_state", "Whether the member is ready: 1 if so, 0 if not.")
	nodeNumber      = gauge("cluster_node_number", "Nodes of the member.")
	readyNodeNumber = gauge("cluster_ready_node_number", "Ready nodes of the member.")

	allocatableGauges = map[corev1.ResourceName]*prometheus.GaugeVec{
		corev1.ResourceMemory: gauge("cluster_memory_allocatable_bytes", "Memory that the member's nodes offer, in bytes."),
		corev1.ResourceCPU:    gauge("cluster_cpu_allocatable_number", "CPU that the member's nodes offer, in cores."),
		corev1.ResourcePods:   gauge("cluster_pod_allocatable_number", "Pods that the member's nodes can hold."),
	}
	allocatedGauges = map[corev1.ResourceName]*prometheus.GaugeVec{
		corev1.ResourceMemory: gauge("cluster_memory_allocated_bytes", "Memory that pods on the member's nodes ask for, in bytes."),
		corev1.ResourceCPU:    gauge("cluster_cpu_allocated_number", "CPU that pods on the member's nodes ask for, in cores."),
		corev1.ResourcePods:   gauge("cluster_pod_allocated_number", "Pods on the member's nodes."),
	}

	syncDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "cluster_sync_status_duration_seconds",
		Help:    "Time it takes to collect the status of the member and write it.",
		Buckets: prometheus.ExponentialBuckets(0.005, 2, 12),
	}, []string{memberLabel})
)

func gauge(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{memberLabel})
}

func allGauges() []*prometheus.GaugeVec {
	all := []*prometheus.GaugeVec{readyState, nodeNumber, readyNodeNumber}
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU, corev1.ResourcePods} {
		all = append(all, allocatableGauges[name], allocatedGauges[name])
	}
	return all
}

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector {
	all := []prometheus.Collector{syncDuration}
	for _, g := range allGauges() {
		all = append(all, g)
	}
	return all
}

func observeDuration(cluster string, took time.Duration) {
	syncDuration.WithLabelValues(cluster).Observe(took.Seconds())
}

func recordMetrics(cluster *clusterv1alpha1.Cluster) {
	ready := 0.0
	if meta.IsStatusConditionTrue(cluster.Status.Conditions, names.ClusterReady) {
		ready = 1
	}
	readyState.WithLabelValues(cluster.Name).Set(ready)
	if nodes := cluster.Status.NodeSummary; nodes != nil {
		nodeNumber.WithLabelValues(cluster.Name).Set(float64(nodes.TotalNum))
		readyNodeNumber.WithLabelValues(cluster.Name).Set(float64(nodes.ReadyNum))
	}
	if resources := cluster.Status.ResourceSummary; resources != nil {
		recordResources(allocatableGauges, cluster.Name, resources.Allocatable)
		recordResources(allocatedGauges, cluster.Name, resources.Allocated)
	}
}

func recordResources(gauges map[corev1.ResourceName]*prometheus.GaugeVec, cluster string, list corev1.ResourceList) {
	for name, g := range gauges {
		g.WithLabelValues(cluster).Set(list.Name(name, "").AsApproximateFloat64())
	}
}

// forgetMetrics deletes the metrics of a member.
func forgetMetrics(cluster string) {
	for _, g := range allGauges() {
		g.DeleteLabelValues(cluster)
	}
	syncDuration.DeleteLabelValues(cluster)
}
