package eviction

import (
	"encoding/json"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// DefaultGracePeriod is how long the old copy is kept while its replacement is not healthy.
const DefaultGracePeriod = 10 * time.Minute

// assess returns the tasks of a binding that continue, and the time until the first of them expires; zero means
// never.
func assess(binding *workv1alpha2.ResourceBinding, now time.Time, grace time.Duration) (tasks []workv1alpha2.GracefulEvictionTask, next time.Duration) {
	replaced := replacementsHealthy(binding)
	for i := range binding.Spec.GracefulEvictionTasks {
		task := &binding.Spec.GracefulEvictionTasks[i]
		if task.SuppressDeletion != nil { // ends when a user says so
			if *task.SuppressDeletion {
				tasks = append(tasks, *task)
			}
			continue
		}
		period := grace
		if seconds := ptr.Deref(task.GracePeriodSeconds, 0); seconds > 0 {
			period = time.Duration(seconds) * time.Second
		}
		left := period
		if task.CreationTimestamp != nil {
			left = task.CreationTimestamp.Add(period).Sub(now)
		}
		if replaced || left <= 0 {
			continue
		}
		tasks = append(tasks, *task)
		if next == 0 || left < next {
			next = left
		}
	}
	return tasks, next
}

// replacementsHealthy reports whether the workload is healthy in all clusters it is placed in. Without clusters
// there is no replacement.
func replacementsHealthy(binding *workv1alpha2.ResourceBinding) bool {
	if binding.Status.SchedulerObservedGeneration != binding.Generation || len(binding.Spec.Clusters) == 0 {
		return false
	}
	return !slices.ContainsFunc(binding.Spec.Clusters, func(target workv1alpha2.TargetCluster) bool {
		return !slices.ContainsFunc(binding.Status.AggregatedStatus, func(item workv1alpha2.AggregatedStatusItem) bool {
			return item.ClusterName == target.Name && item.Applied && replaces(binding, &item, target.Replicas)
		})
	})
}

// replaces reports whether a copy is as it should be. In a rollout that is planned for all clusters it gets its replicas step by step and is healthy with those it
// has; and it is not healthy in the middle of its update, however many pods are available. So its available pods are counted.
func replaces(binding *workv1alpha2.ResourceBinding, item *workv1alpha2.AggregatedStatusItem, replicas int32) bool {
	if binding.Annotations[names.RolloutAnnotation] == "" {
		return item.Health == workv1alpha2.ResourceHealthy
	}
	var status struct{ AvailableReplicas int32 }
	return item.Status != nil && json.Unmarshal(item.Status.Raw, &status) == nil && status.AvailableReplicas >= replicas
}
