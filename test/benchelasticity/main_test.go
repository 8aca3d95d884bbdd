package main

import (
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
	r := &reporters{use: make([]int64, 3), pods: []int32{1, 1, 2}, scaled: 1}
	last := int64(0)
	for round := range 4 {
		r.vary(round)
		use := r.use[2]
		if change := use - last; max(change, -change)*50 <= use || use*10 > usual*11 || use*10 < usual*9 {
			t.Errorf("round %d: the use is %d after %d", round, use, last)
		}
		last = use
	}
	items := r.items(time.Now())
	if got := items[2].Metrics[0]; len(items) != 3 || got.Measured.Pods != 2 || got.Measured.Usage.MilliValue() != 2*last || len(items[0].Labels) != 1 || len(items[1].Labels) != 0 {
		t.Errorf("the items are %+v", items)
	}
}
