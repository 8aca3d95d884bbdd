package autoscaler

import (
	"encoding/json"
	"errors"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/autoscale"
	"github.com/cellplane/cellplane/internal/schedule"
)

// observation is what is known about a workload in all its clusters.
type observation struct {
	workload autoscale.Workload
	readings []autoscale.Reading
	// silent are the clusters that do not report about it.
	silent []string
}

var (
	errNoCluster = errors.New("the workload is not placed in any cluster")
	errElsewhere = errors.New("metrics of objects and external metrics are not collected")
)

// observe adds up the reports of the clusters of a binding. Those of other clusters do not count. A cluster that does not report counts with its last
// replicas, as pods without a sample.
func observe(binding *workv1alpha2.ResourceBinding, metrics []autoscalingv2.MetricSpec, reports map[string]*report) observation {
	o := observation{workload: autoscale.Workload{Replicas: binding.Spec.Replicas}, readings: make([]autoscale.Reading, len(metrics))}
	if binding.Spec.Placement == nil || !schedule.Divided(binding.Spec.Placement) {
		o.workload.Copies = int32(len(binding.Spec.Clusters))
	}
	clusters := clustersOf(binding)
	for _, cluster := range clusters {
		if reported := reports[cluster]; reported != nil {
			o.workload.Pods = o.workload.Pods.Add(reported.pods)
			continue
		}
		if pods := lastReplicas(binding, cluster); pods > 0 {
			o.workload.Pods.Unknown += pods
			o.silent = append(o.silent, cluster)
		}
	}
	o.workload.Running = o.workload.Pods.Total + o.workload.Pods.Unknown
	for i := range metrics {
		o.readings[i] = read(binding, clusters, metrics[i], reports)
	}
	return o
}

// read returns the reading of one metric.
func read(binding *workv1alpha2.ResourceBinding, clusters []string, spec autoscalingv2.MetricSpec, reports map[string]*report) autoscale.Reading {
	metric, ofPods, err := autoscale.MetricOf(spec)
	switch {
	case err != nil:
		return autoscale.Reading{Err: err}
	case !ofPods:
		return autoscale.Reading{Err: errElsewhere}
	case len(clusters) == 0:
		return autoscale.Reading{Err: errNoCluster}
	}
	var sum autoscale.Sums
	for _, cluster := range clusters {
		reported := reports[cluster]
		if reported == nil {
			sum = sum.Add(autoscale.Unknown(lastReplicas(binding, cluster), request(binding, metric)))
			continue
		}
		sums, known := reported.sums[metric]
		if !known { // the agent has not heard yet that it is wanted
			sums = autoscale.Unknown(reported.pods.Total, request(binding, metric))
		}
		sum = sum.Add(sums)
	}
	return autoscale.Reading{Sums: sum}
}

// clustersOf returns the clusters in which a workload runs: those that it is placed in, and those that it is leaving.
func clustersOf(binding *workv1alpha2.ResourceBinding) []string {
	var all []string
	for i := range binding.Spec.Clusters {
		all = append(all, binding.Spec.Clusters[i].Name)
	}
	for i := range binding.Spec.GracefulEvictionTasks {
		if from := binding.Spec.GracefulEvictionTasks[i].FromCluster; !slices.Contains(all, from) {
			all = append(all, from)
		}
	}
	return all
}

// lastReplicas returns the replicas that a cluster has reported, or should have. The larger counts: pods that may exist must not be scaled down unseen.
func lastReplicas(binding *workv1alpha2.ResourceBinding, cluster string) int32 {
	var replicas int32
	for i := range binding.Spec.Clusters {
		if binding.Spec.Clusters[i].Name == cluster {
			replicas = binding.Spec.Clusters[i].Replicas
		}
	}
	for i := range binding.Status.AggregatedStatus {
		item := &binding.Status.AggregatedStatus[i]
		if item.ClusterName != cluster || item.Status == nil {
			continue
		}
		var status struct {
			Replicas int32 `json:"replicas"`
		}
		if json.Unmarshal(item.Status.Raw, &status) == nil {
			replicas = max(replicas, status.Replicas)
		}
	}
	return replicas
}

// request returns what a pod of the workload requests, in thousandths. That of a container is not known: the request of the whole pod makes a scale-down
// smaller.
func request(binding *workv1alpha2.ResourceBinding, metric autoscale.Metric) int64 {
	requirements := binding.Spec.ReplicaRequirements
	if requirements == nil || metric.Resource == "" {
		return 0
	}
	quantity, ok := requirements.ResourceRequest[metric.Resource]
	if !ok {
		return 0
	}
	return quantity.MilliValue()
}
