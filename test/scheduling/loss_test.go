package scheduling_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

// All workloads of a lost cluster are placed elsewhere and have Works there. test/benchscheduler measures how fast.
func TestLosingACluster(t *testing.T) {
	const n = 40
	w := newWorld(t, "a")
	w.setCapacity("a", int64(n+10)) // what does not fit yet waits
	w.policy(aggregated, oneCluster)
	all := func(what, cluster string) {
		t.Helper()
		testenv.Eventually(t, what, func(ctx context.Context) (bool, error) {
			var works workv1alpha1.WorkList
			// The cache of the API server makes a full list as cheap as one of metadata.
			if err := w.client.List(ctx, &works, ctrlclient.InNamespace(names.ExecutionNamespace(w.full(cluster))), ctrlclient.Limit(int64(n+1))); err != nil {
				return false, err
			}
			return len(works.Items) == n, fmt.Errorf("%d of %d Works exist", len(works.Items), n)
		})
	}
	var wait sync.WaitGroup
	for worker := range 8 {
		wait.Go(func() {
			for i := worker; i < n; i += 8 {
				w.create(w.deployment(fmt.Sprintf("d-%d", i), 1))
			}
		})
	}
	wait.Wait()
	all("all are placed", "a")

	w.join("b")
	w.setCapacity("b", int64(n+10))
	w.taint("a", noExecute("lost"))
	all("all are moved", "b")
	var bindings workv1alpha2.ResourceBindingList
	if err := w.client.List(t.Context(), &bindings, ctrlclient.InNamespace(w.ns)); err != nil {
		t.Fatal(err)
	}
	for i := range bindings.Items {
		b := &bindings.Items[i]
		if w.placed(b) != "b:1" || len(b.Spec.GracefulEvictionTasks) != 1 || b.Spec.GracefulEvictionTasks[0].PurgeMode != policyv1alpha1.PurgeModeGracefully {
			t.Errorf("%s is in %s with tasks %+v", b.Name, w.placed(b), b.Spec.GracefulEvictionTasks)
		}
	}
}
