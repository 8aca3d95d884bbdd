package scheduling_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// pods holds the number of unschedulable pods that the tests report, by cluster.
var pods sync.Map

func pendingPods(_ context.Context, cluster string, _ *workv1alpha2.ResourceBinding, _ time.Duration) (int32, error) {
	if count, ok := pods.Load(cluster); ok {
		return count.(int32), nil
	}
	return 0, nil
}

// S26: replicas of unschedulable pods move to a cluster with capacity, and stay while there is
// none. Ready replicas stay.
func TestDescheduler(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	w.policy(aggregated)
	w.create(w.deployment("web", 4))
	w.untilPlaced("web", "a:4")
	pods.Store(w.full("a"), int32(3))
	w.report("a", "web", workv1alpha1.ResourceUnhealthy, `{"replicas":4,"readyReplicas":2,"unavailableReplicas":2,"observedGeneration":1}`)
	w.until("the status is aggregated", "web", func(b *workv1alpha2.ResourceBinding) bool { return len(b.Status.AggregatedStatus) == 1 })
	w.create(w.deployment("barrier", 1))
	w.untilPlaced("barrier", "a:1")
	w.untilPlaced("web", "a:4")
	w.join("b")
	w.untilPlaced("web", "a:2 b:2")
	w.untilEvent("web", names.EventDescheduleBindingSucceed)
}
