package autoscaler

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	// lacking says which clusters report, but lack a metric.
	lacking []string
}

var errNoCluster = errors.New("the workload is not placed in any cluster")

// evidence is a workload with what its clusters report.
type evidence struct {
	binding *workv1alpha2.ResourceBinding
	reports map[string]*report
	// clusters are those in which it runs.
	clusters []string
	// largest is set if the largest of the values that clusters have of an object counts, and not their sum.
	largest bool
}

// observe adds up the reports of the clusters of a binding. Those of other clusters do not count. A cluster that does not report counts with its last
// replicas, as pods without a sample.
func observe(e evidence, metrics []autoscalingv2.MetricSpec) observation {
	o := observation{workload: autoscale.Workload{Replicas: e.binding.Spec.Replicas}, readings: make([]autoscale.Reading, len(metrics))}
	if e.binding.Spec.Placement == nil || !schedule.Divided(e.binding.Spec.Placement) {
		o.workload.Copies = int32(len(e.binding.Spec.Clusters))
	}
	e.clusters = clustersOf(e.binding)
	for _, cluster := range e.clusters {
		if reported := e.reports[cluster]; reported != nil {
			o.workload.Pods = o.workload.Pods.Add(reported.pods)
			continue
		}
		if pods := lastReplicas(e.binding, cluster); pods > 0 {
			o.workload.Pods = o.workload.Pods.Add(autoscale.Pods{Unknown: pods})
			o.silent = append(o.silent, cluster)
		}
	}
	o.workload.Running = o.workload.Pods.Running()
	for i := range metrics {
		reading, lacking := e.read(metrics[i])
		o.readings[i], o.lacking = reading, append(o.lacking, lacking...)
	}
	return o
}

// read returns the reading of one metric, and which clusters lack it.
func (e evidence) read(spec autoscalingv2.MetricSpec) (autoscale.Reading, []string) {
	metric, ofPods, err := autoscale.MetricOf(spec)
	switch {
	case err != nil:
		return autoscale.Reading{Err: err}, nil
	case len(e.clusters) == 0:
		return autoscale.Reading{Err: errNoCluster}, nil
	}
	var r autoscale.Reading
	var lacking []string
	known := 0
	for _, cluster := range e.clusters {
		reported := e.reports[cluster]
		if reported == nil {
			if pods := lastReplicas(e.binding, cluster); pods > 0 {
				r.Incomplete = true
				r.Sums = r.Sums.Add(autoscale.Unknown(pods, request(e.binding, metric)))
			}
			continue
		}
		part, has := reported.parts[metric]
		switch {
		case has && part.Failure == "" && !(ofPods && e.unseen(cluster, part)):
			r.Sums = r.Sums.Add(notNegative(part.Sums))
			if known++; known == 1 {
				r.Value = e.counted(part.Value)
			} else {
				r.Value = e.combine(r.Value, e.counted(part.Value))
			}
		case reported.pods.Total > 0 || lastReplicas(e.binding, cluster) > 0:
			r.Incomplete = true
			r.Sums = r.Sums.Add(autoscale.Unknown(reported.pods.Total, request(e.binding, metric)))
			why := "its agent has not asked for it yet"
			if has {
				why = cmp.Or(part.Failure, "it says nothing of its pods")
			}
			lacking = append(lacking, fmt.Sprintf("%s lacks the %s: %s", cluster, metric, why))
		}
	}
	if known == 0 && (!ofPods || len(lacking) > 0) {
		return autoscale.Reading{Err: errors.New(cmp.Or(some(lacking), "no cluster reports"))}, nil
	}
	return r, lacking
}

// unseen reports whether a cluster says nothing of any pod, though it has pods, and should have. A cluster-gateway of an older version leaves out why a cluster knows nothing.
func (e evidence) unseen(cluster string, part autoscale.Part) bool {
	return part.Empty() && e.reports[cluster].pods.Total > 0 && lastReplicas(e.binding, cluster) > 0
}

// notNegative returns sums of which nothing lowers those of other clusters.
func notNegative(s autoscale.Sums) autoscale.Sums {
	s.Usage, s.Requests, s.UnreadyRequests = max(s.Usage, 0), max(s.Requests, 0), max(s.UnreadyRequests, 0)
	return s
}

// counted returns what counts of the value of one cluster. In a sum, it does not lower those of others.
func (e evidence) counted(value int64) int64 {
	if e.largest {
		return value
	}
	return max(value, 0)
}

// combine returns what counts of the values that clusters have of an object.
func (e evidence) combine(a, b int64) int64 {
	if e.largest {
		return max(a, b)
	}
	return autoscale.Total([]int64{a, b})
}

// mostNamed is how many clusters that lack a metric are named.
const mostNamed = 3

// some joins texts, of which there may be many.
func some(all []string) string {
	if more := len(all) - mostNamed; more > 0 {
		return strings.Join(all[:mostNamed], ", ") + fmt.Sprintf(", and %d more", more)
	}
	return strings.Join(all, ", ")
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
