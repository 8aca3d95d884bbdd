package eviction

import (
	"slices"
	"time"

	"k8s.io/utils/ptr"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// DefaultGracePeriod is how long an old copy outlasts an unhealthy new one if nobody says otherwise.
const DefaultGracePeriod = 10 * time.Minute

// assess returns the tasks of a binding that go on, and after how long the first of them is over even if nothing
// happens; zero means never.
func assess(binding *workv1alpha2.ResourceBinding, now time.Time, grace time.Duration) (tasks []workv1alpha2.GracefulEvictionTask, next time.Duration) {
	replaced := replacementsHealthy(binding)
	for i := range binding.Spec.GracefulEvictionTasks {
		task := &binding.Spec.GracefulEvictionTasks[i]
		if task.SuppressDeletion != nil { // a person decides
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

// replacementsHealthy tells whether the clusters that were chosen since all run the workload well. Where none could be
// chosen there is no replacement.
func replacementsHealthy(binding *workv1alpha2.ResourceBinding) bool {
	if binding.Status.SchedulerObservedGeneration != binding.Generation || len(binding.Spec.Clusters) == 0 {
		return false
	}
	return !slices.ContainsFunc(binding.Spec.Clusters, func(target workv1alpha2.TargetCluster) bool {
		return !slices.ContainsFunc(binding.Status.AggregatedStatus, func(item workv1alpha2.AggregatedStatusItem) bool {
			return item.ClusterName == target.Name && item.Applied && item.Health == workv1alpha2.ResourceHealthy
		})
	})
}
