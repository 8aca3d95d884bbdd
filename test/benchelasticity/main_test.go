package main

import (
	"sync/atomic"
	"testing"
	"time"
)

func TestFlags(t *testing.T) {
	if s, err := parse(nil); err != nil || s.workloads < s.autoscalers || s.interval != 15*time.Second {
		t.Errorf("defaults = %+v: %v", s, err)
	}
	for _, invalid := range [][]string{{"-workloads=0"}, {"-autoscalers=-1"}, {"-rounds=0"}, {"-interval=0s"}, {"-workloads=10", "-autoscalers=20"}, {"-autoscalers=5", "-loads=6"}, {"more"}} {
		if _, err := parse(invalid); err == nil {
			t.Errorf("%v is accepted", invalid)
		}
	}
}

// TestReportsVary checks that each round changes all workloads by more than noise, which is not reported, and by less than an autoscaler tolerates.
func TestReportsVary(t *testing.T) {
	r := &reporters{busy: make([]atomic.Bool, 3)}
	r.scaled.Store(1)
	r.busy[1].Store(true)
	previous := int64(0)
	for round := range 4 {
		items := r.items(round, time.Now())
		use := items[2].Metrics[0].Measured.Usage.MilliValue()
		if change := use - previous; max(change, -change)*50 <= use || use*10 > usual*11 || use*10 < usual*9 {
			t.Errorf("round %d: the use is %d after %d", round, use, previous)
		}
		if busy := items[1].Metrics[0].Measured.Usage.MilliValue(); busy != 2*use {
			t.Errorf("round %d: the use of the busy one is %d", round, busy)
		}
		if len(items) != 3 || len(items[0].Labels) != 1 || len(items[1].Labels) != 0 {
			t.Errorf("the items are %+v", items)
		}
		previous = use
	}
}

// TestLoads checks that a load counts from the first report that has it, and until the first member has more replicas.
func TestLoads(t *testing.T) {
	r := &reporters{busy: make([]atomic.Bool, 2)}
	l, start := &r.loads, time.Now()
	l.pushed(r.items(0, start), start)
	l.begin(workload(1), start)
	l.pushed(r.items(0, start), start.Add(time.Second))
	r.busy[1].Store(true)
	l.pushed(r.items(0, start), start.Add(2*time.Second))
	if _, _, done := l.took(); done {
		t.Error("nothing was placed")
	}
	l.placed(workload(0), start)
	l.placed(workload(1), start.Add(5*time.Second))
	l.pushed(r.items(1, start), start.Add(6*time.Second))
	l.placed(workload(1), start.Add(7*time.Second))
	if load, push, done := l.took(); !done || len(load) != 1 || load[0] != 5*time.Second || push[0] != 3*time.Second {
		t.Errorf("it took %s, and %s from the report", load, push)
	}
}
