package eviction

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// Eviction describes the removal of a workload from a cluster.
type Eviction struct {
	// Cluster to evict from.
	Cluster string
	// PurgeMode says when the copy is deleted; empty means Gracefully.
	PurgeMode policyv1alpha1.PurgeMode
	// GracePeriodSeconds bounds how long the copy is kept while its replacement is unhealthy; nil uses the
	// controller's default.
	GracePeriodSeconds *int32
	// Reason and Producer are machine-readable, Message is for people.
	Reason, Producer, Message string
	// Preserve selects parts of the old copy's status to carry over.
	Preserve *policyv1alpha1.StatePreservation
}

// maxMessageLength is the limit in the API.
const maxMessageLength = 1024

// Evict removes a cluster from a binding and adds a task. It reports whether the binding had the cluster.
func Evict(binding *workv1alpha2.ResourceBinding, e Eviction, now time.Time) bool {
	spec := &binding.Spec
	i := slices.IndexFunc(spec.Clusters, func(t workv1alpha2.TargetCluster) bool { return t.Name == e.Cluster })
	if i < 0 {
		return false
	}
	before := clusterNames(spec.Clusters)
	task := workv1alpha2.GracefulEvictionTask{
		FromCluster: e.Cluster, PurgeMode: e.PurgeMode, Reason: e.Reason, Message: e.Message, Producer: e.Producer,
		GracePeriodSeconds: e.GracePeriodSeconds, CreationTimestamp: &metav1.Time{Time: now.Truncate(time.Second)}, ClustersBeforeFailover: before,
	}
	if replicas := spec.Clusters[i].Replicas; replicas > 0 {
		task.Replicas = ptr.To(replicas)
	}
	switch e.PurgeMode {
	case "":
		task.PurgeMode = policyv1alpha1.PurgeModeGracefully
	case policyv1alpha1.PurgeModeNever:
		task.SuppressDeletion, task.GracePeriodSeconds = ptr.To(true), nil
	}
	if e.Preserve != nil {
		var missing []string
		task.PreservedLabelState, missing = preserve(e.Preserve, statusIn(binding, e.Cluster))
		if len(missing) > 0 {
			task.Message = strings.TrimSpace(task.Message + " Not carried over: " + strings.Join(missing, "; ") + ".")
		}
	}
	if len(task.Message) > maxMessageLength {
		task.Message = task.Message[:maxMessageLength-3] + "..."
	}
	spec.Clusters = slices.Delete(slices.Clone(spec.Clusters), i, i+1)
	// An older task for the cluster is about a copy that has been placed there again since.
	spec.GracefulEvictionTasks = slices.DeleteFunc(slices.Clone(spec.GracefulEvictionTasks), func(t workv1alpha2.GracefulEvictionTask) bool {
		return t.FromCluster == e.Cluster
	})
	spec.GracefulEvictionTasks = append(spec.GracefulEvictionTasks, task)
	if binding.Annotations[names.FailBackAnnotation] != "" {
		remember(binding, e.Cluster)
	}
	return true
}

// remember adds a cluster to the clusters to fail back to.
func remember(binding *workv1alpha2.ResourceBinding, cluster string) {
	left := Left(binding)
	if slices.Contains(left, cluster) {
		return
	}
	left = append(left, cluster)
	slices.Sort(left)
	binding.Annotations[names.EvictedFromAnnotation] = strings.Join(left, ",")
}

// Left returns the clusters that a binding was evicted from and may fail back to.
func Left(binding *workv1alpha2.ResourceBinding) []string {
	text := binding.Annotations[names.EvictedFromAnnotation]
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func clusterNames(targets []workv1alpha2.TargetCluster) []string {
	all := make([]string, len(targets))
	for i := range targets {
		all[i] = targets[i].Name
	}
	slices.Sort(all)
	return all
}

// statusIn returns the last known status of the copy in a cluster.
func statusIn(binding *workv1alpha2.ResourceBinding, cluster string) []byte {
	for i := range binding.Status.AggregatedStatus {
		if item := &binding.Status.AggregatedStatus[i]; item.ClusterName == cluster && item.Status != nil {
			return item.Status.Raw
		}
	}
	return nil
}
