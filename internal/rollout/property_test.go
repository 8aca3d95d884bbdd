package rollout

import (
	"flag"
	"fmt"
	"strings"
	"testing"
)

var (
	runs  = flag.Int("rollout.runs", 400, "number of runs of the model")
	first = flag.Uint64("rollout.seed", 1, "seed of the first run; the others follow")
)

// warmUp is how long a run is undisturbed at first.
const warmUp = 6

// steps is how long a run is disturbed.
const steps = 600

// rounds is how long a run may take to finish after that.
const rounds = 300

// failure is why a run failed.
type failure struct {
	seed  uint64
	kind  Kind
	why   string
	trace []string
}

func (f *failure) String() string {
	return fmt.Sprintf("seed %d, %s: %s\n%s", f.seed, f.kind, f.why, strings.Join(f.trace, "\n"))
}

// run runs the model once.
func run(seed uint64, rules rules, faults faults) *failure {
	w := newWorld(seed, rules, faults)
	var broken error
	check := func() {
		if broken == nil {
			broken = w.check()
		}
	}
	fail := func(why string) *failure { return &failure{seed, w.kind, why, w.trace} }
	for range warmUp {
		w.round(check)
	}
	for range steps {
		w.act()
		if check(); broken != nil {
			return fail(broken.Error())
		}
	}
	w.calm()
	var result Result
	for n := range rounds {
		for _, m := range w.members {
			m.failing = n > rounds/2 // whatever is unavailable now, stays so
		}
		result = w.round(check)
		if broken != nil {
			return fail(broken.Error())
		}
		if finished(result) {
			if err := w.checkEnd(); err != nil {
				return fail("finished, but " + err.Error())
			}
			return nil
		}
	}
	for _, d := range result.Decisions {
		w.logf("%s: %+v", d.Name, d)
	}
	w.logf("%+v %+v, shares %v, target %s", w.bounds, result.Sums, func() (shares []int) {
		for _, m := range w.members {
			shares = append(shares, m.share)
		}
		return shares
	}(), w.revision)
	return fail("it does not finish")
}

// TestBoundsHold runs the planner against the model of the stock controllers, with delays, outdated and reordered observations, restarts,
// engines that do not know of each other, moves, failures of pods and clusters, changed budgets and updates during updates. After every
// step the pods that exist are within the bounds, and when the disturbances end, every run finishes.
func TestBoundsHold(t *testing.T) {
	t.Logf("seeds %d to %d", *first, *first+uint64(*runs)-1)
	for seed := *first; seed < *first+uint64(*runs); seed++ {
		if failed := run(seed, rules{}, faults{}); failed != nil {
			t.Fatalf("%s", failed)
		}
	}
}
