package rebalance

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
)

// testLostAnswers loses the answer to each transaction in turn: the mover continues without knowing whether it was
// executed.
func testLostAnswers(t *testing.T, env *cellEnv) {
	topology := joining(t, false, "cell-a", "cell-b")
	for lost := 1; ; lost++ {
		namespace := fmt.Sprintf("lost-answer-%d", lost)
		move, stay := env.sample(t, topology, namespace, 1, 1)
		env.populate(t, "cell-a", namespace, append(move, stay...)...)
		before, _ := env.contents(t, "cell-a", namespace)
		m := env.mover(t, topology)
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
		env.checkMoved(t, before, "cell-a", "cell-b", namespace, move)
		if done < lost { // no answer was lost: a template and a binding were counted once each
			if counted := testutil.ToFloat64(steps.WithLabelValues(handover.Activate.String())) - activated; counted != 2 {
				t.Errorf("%v objects are counted as moved", counted)
			}
			return
		}
	}
}

// stopBy ends a run if a hook has failed.
func stopBy(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", errStopped, err)
	}
	return nil
}
