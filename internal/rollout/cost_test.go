package rollout

import (
	"fmt"
	"testing"

	"github.com/cellplane/cellplane/internal/rollout/controllermodel"
)

// TestOrdinaryUpdateIsCheap counts the writes of an update that nothing disturbs, and compares its length with that of the largest
// cluster alone with its share of the budget.
func TestOrdinaryUpdateIsCheap(t *testing.T) {
	for _, test := range []struct {
		shares []int
		bounds Bounds
		writes int
		// alone are the bounds of the largest cluster; zero if its share is less than a pod, so that clusters take turns.
		alone Bounds
	}{
		{[]int{3, 3, 3}, Bounds{Replicas: 9, Surge: 3, Unavailable: 2}, 4, Bounds{Replicas: 3, Surge: 1}},
		{[]int{10, 10, 10}, Bounds{Replicas: 30, Surge: 8, Unavailable: 7}, 4, Bounds{Replicas: 10, Surge: 2, Unavailable: 2}},
		{[]int{20, 5, 1}, Bounds{Replicas: 26, Surge: 7, Unavailable: 6}, 5, Bounds{Replicas: 20, Surge: 5, Unavailable: 4}},
		{[]int{3, 3, 3}, Bounds{Replicas: 9, Surge: 1}, 6, Bounds{}},
		{[]int{3, 3, 3}, Bounds{Replicas: 9, Unavailable: 1}, 6, Bounds{}},
	} {
		t.Run(fmt.Sprint(test.shares, test.bounds), func(t *testing.T) {
			writes, length := updateUndisturbed(t, test.shares, test.bounds)
			if writes > test.writes {
				t.Errorf("it took %d writes", writes)
			}
			if test.alone.Replicas == 0 {
				return
			}
			if _, alone := updateUndisturbed(t, []int{test.alone.Replicas}, test.alone); 2*length > 3*alone {
				t.Errorf("it took %d rounds, and one cluster alone %d", length, alone)
			}
		})
	}
}

// updateUndisturbed updates a Deployment. It returns how many objects were written in the cell, and how many rounds it took.
func updateUndisturbed(t *testing.T, shares []int, bounds Bounds) (writes, length int) {
	w := &world{kind: Deployment, bounds: bounds, revision: "v1", ledger: map[string]Entry{}, works: map[string]storedWork{}, engines: []*engine{{}}}
	w.restart(w.engines[0])
	for i, share := range shares {
		w.members = append(w.members, &member{name: fmt.Sprintf("m%d", i), share: share, workload: controllermodel.NewDeployment()})
	}
	for range warmUp {
		w.round(func() {})
	}
	w.mostPods, w.leastAvailable, w.mostUpdated = bounds.maxPods(), bounds.minAvailable(), bounds.Replicas
	w.previous, w.revision = "v1", "v2"
	for result := (Result{Decisions: make([]Decision, 1)}); !finished(result); length++ {
		result = w.round(func() {
			if err := w.check(); err != nil {
				t.Fatal(err)
			}
		})
		commands := 0
		for _, d := range result.Decisions {
			if d.Commanded {
				commands++
			}
		}
		if commands > 0 {
			writes += 1 + commands // the ledger and the Works
		}
	}
	return writes, length
}
