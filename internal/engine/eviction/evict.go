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

// Eviction is a decision to take a workload out of a cluster.
type Eviction struct {
	// Cluster to leave.
	Cluster string
	// PurgeMode says what becomes of the copy there; empty means Gracefully.
	PurgeMode policyv1alpha1.PurgeMode
	// GracePeriodSeconds bounds how long the copy outlasts an unhealthy new one; nil leaves it to the controller.
	GracePeriodSeconds *int32
	// Reason and Producer are words for programs, Message is a sentence for people.
	Reason, Producer, Message string
	// Preserve lists what of the old copy's status is carried over.
	Preserve *policyv1alpha1.StatePreservation
}

// longestMessage is as much as the API takes.
const longestMessage = 1024

// Evict takes a cluster off a binding and leaves a task behind. It reports whether the cluster was on it.
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
	if len(task.Message) > longestMessage {
		task.Message = task.Message[:longestMessage-3] + "..."
	}
	spec.Clusters = slices.Delete(slices.Clone(spec.Clusters), i, i+1)
	// An older task for the cluster is about a copy that has come back since.
	spec.GracefulEvictionTasks = slices.DeleteFunc(slices.Clone(spec.GracefulEvictionTasks), func(t workv1alpha2.GracefulEvictionTask) bool {
		return t.FromCluster == e.Cluster
	})
	spec.GracefulEvictionTasks = append(spec.GracefulEvictionTasks, task)
	if binding.Annotations[names.FailBackAnnotation] != "" {
		remember(binding, e.Cluster)
	}
	return true
}

// remember notes that a cluster was left, for when it is back.
func remember(binding *workv1alpha2.ResourceBinding, cluster string) {
	left := Left(binding)
	if slices.Contains(left, cluster) {
		return
	}
	left = append(left, cluster)
	slices.Sort(left)
	binding.Annotations[names.EvictedFromAnnotation] = strings.Join(left, ",")
}

// Left returns the clusters that a binding was evicted from and wants to go back to.
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

// statusIn returns the status of the copy in a cluster as it was last seen.
func statusIn(binding *workv1alpha2.ResourceBinding, cluster string) []byte {
	for i := range binding.Status.AggregatedStatus {
		if item := &binding.Status.AggregatedStatus[i]; item.ClusterName == cluster && item.Status != nil {
			return item.Status.Raw
		}
	}
	return nil
}
