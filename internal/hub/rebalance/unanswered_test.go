package rebalance

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
)

// testUnanswered loses the answer to each transaction in turn: the mover goes on without knowing what became of it.
func testUnanswered(t *testing.T, y *yard) {
	topology := joining(t, false, "cell-a", "cell-b")
	for lost := 1; ; lost++ {
		namespace := fmt.Sprintf("unanswered-%d", lost)
		move, stay := y.sample(t, topology, namespace, 1, 1)
		y.populate(t, "cell-a", namespace, append(move, stay...)...)
		before, _ := y.contents(t, "cell-a", namespace)
		m := y.mover(t, topology)
		var mu sync.Mutex
		done := 0
		m.Written = func(handover.Step, string, string) error {
			mu.Lock()
			defer mu.Unlock()
			if done++; done == lost {
				return errors.New("the answer was lost")
			}
			return nil
		}
		activated := testutil.ToFloat64(steps.WithLabelValues(handover.Activate.String()))
		if err := m.Run(t.Context()); err != nil {
			t.Fatalf("after transaction %d: %v", lost, err)
		}
		y.checkMoved(t, before, "cell-a", "cell-b", namespace, move)
		if done < lost { // none was lost: of a template and a binding, each was counted once
			if counted := testutil.ToFloat64(steps.WithLabelValues(handover.Activate.String())) - activated; counted != 2 {
				t.Errorf("%v objects are counted as moved", counted)
			}
			return
		}
	}
}

// stopBy has a hook end a run by what went wrong in it.
func stopBy(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", errStopped, err)
	}
	return nil
}
