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

// TestPartitionKeepsOrdinals updates StatefulSets with a partition, which is lowered later. At no step are more pods updated than those from the partition on.
func TestPartitionKeepsOrdinals(t *testing.T) {
	for seed := range uint64(100) {
		w := newWorld(seed, rules{}, faults{statefulSets: true})
		w.events = 0
		w.bounds.Partition = 0
		for range warmUp {
			w.round(func() {})
		}
		w.update(false)
		for partition := w.bounds.Replicas; partition >= 0; partition -= 1 + w.random.IntN(4) {
			w.bounds.Partition = partition
			for range 100 {
				w.act()
				if updated := w.updated(); updated > w.bounds.maxUpdated() {
					t.Fatalf("seed %d: %d pods are updated, and %d may be\n%s", seed, updated, w.bounds.maxUpdated(), strings.Join(w.trace, "\n"))
				}
			}
			var result Result
			for n := 0; n < rounds && !finished(result) || n == 0; n++ {
				result = w.round(func() {})
			}
			if updated := w.updated(); !finished(result) || updated != w.bounds.maxUpdated() {
				t.Fatalf("seed %d: %d pods are updated in the end, and %d should be\n%s", seed, updated, w.bounds.maxUpdated(), strings.Join(w.trace, "\n"))
			}
		}
	}
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

// TestBoundsHoldForInterpretedKinds does the same for kinds that an interpreter describes. Their controllers are those of Deployments, and of CloneSets that are
// updated in place; the planner knows neither.
func TestBoundsHoldForInterpretedKinds(t *testing.T) {
	t.Logf("seeds %d to %d", *first, *first+uint64(*runs/2)-1)
	for seed := *first; seed < *first+uint64(*runs/2); seed++ {
		if failed := run(seed, rules{}, faults{interpreted: true}); failed != nil {
			t.Fatalf("%s", failed)
		}
	}
}

// TestBoundsHoldWithEntries does the same while people take copies out of the federation's hands, and give them back.
func TestBoundsHoldWithEntries(t *testing.T) {
	t.Logf("seeds %d to %d", *first, *first+uint64(*runs/2)-1)
	for seed := *first; seed < *first+uint64(*runs/2); seed++ {
		if failed := run(seed, rules{}, faults{entries: true}); failed != nil {
			t.Fatalf("%s", failed)
		}
	}
}

// TestOthersGoOn opens the entry of a member before an update, whatever the bounds are. All others finish the update, and the plan tells what it waits for. When the entry is
// closed, so does that member.
func TestOthersGoOn(t *testing.T) {
	for seed := range uint64(50) {
		w := newWorld(seed, rules{}, faults{})
		w.events, w.bounds.Partition = 0, 0
		for _, m := range w.members {
			m.share = max(1, m.share)
		}
		w.bounds.Replicas = 0
		for _, m := range w.members {
			w.bounds.Replicas += m.share
		}
		fail := func(why string, result Result) {
			t.Helper()
			t.Fatalf("seed %d, %s: %s\n%+v\n%s", seed, w.kind, why, result.Decisions, strings.Join(w.trace, "\n"))
		}
		var result Result
		for n := 0; n == 0 || n < rounds && !finished(result); n++ {
			result = w.round(func() {})
		}
		w.open(w.members[0])
		for range 2 { // an update during an update, too
			w.update(false)
			for range rounds {
				result = w.round(func() {})
			}
			for i, d := range result.Decisions {
				switch {
				case i == 0 && (d.Done || !d.Blocked || d.Reason != untilClosed):
					fail("the open member does not wait", result)
				case i > 0 && !d.Done:
					fail("another member is not done", result)
				}
			}
		}
		w.open(w.members[0])
		for n := 0; n == 0 || n < rounds && !finished(result); n++ {
			result = w.round(func() {})
		}
		if err := w.checkEnd(); err != nil || !finished(result) {
			fail(fmt.Sprintf("it does not finish after the entry is closed: %v", err), result)
		}
	}
}
