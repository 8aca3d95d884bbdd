package cells

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/slots"
)

// topology parses cells as "a b:2#7 c+ d- e! f:1>3": weight and seed, joining, leaving, failed, and a weight that
// changes.
func topology(text string) v1alpha1.CellTopologySpec {
	var spec v1alpha1.CellTopologySpec
	for _, word := range strings.Fields(text) {
		cell := v1alpha1.TopologyCell{Weight: 1, State: v1alpha1.CellStateNormal}
		switch word[len(word)-1] {
		case '+':
			cell.State = v1alpha1.CellStateIn
		case '-':
			cell.State = v1alpha1.CellStateOut
		case '!':
			cell.State = v1alpha1.CellStateFailed
		}
		word, seed, _ := strings.Cut(strings.TrimRight(word, "+-!"), "#")
		_, _ = fmt.Sscan(seed, &cell.Seed)
		name, weights, weighted := strings.Cut(word, ":")
		cell.Name = name
		if weighted {
			now, then, changes := strings.Cut(weights, ">")
			_, _ = fmt.Sscan(now, &cell.Weight)
			if changes {
				cell.TargetWeight = ptr.To(int32(0))
				_, _ = fmt.Sscan(then, cell.TargetWeight)
			}
		}
		spec.Cells = append(spec.Cells, cell)
	}
	return spec
}

func TestEdits(t *testing.T) {
	for _, test := range []struct {
		name, before string
		edit         Edit
		after        string
		refused      string
	}{
		{name: "add", before: "a b", edit: Add("c", 2), after: "a b c:2#4+"},
		{name: "add what is there", before: "a b", edit: Add("b", 1), refused: "b is in the topology already"},
		{name: "add twice", before: "a b+", edit: Add("b", 1), refused: "b is joining already"},
		{name: "add what failed", before: "a b!", edit: Add("b", 1), refused: "cellplane cells rejoin b"},
		{name: "add without weight", before: "a", edit: Add("b", 0), refused: "at least 1, not 0"},
		{name: "add while another joins", before: "a b+", edit: Add("c", 1), refused: "another change is under way: b is joining;"},
		{name: "add while another leaves", before: "a b-", edit: Add("c", 1), refused: "b is leaving"},
		{name: "add while weights change", before: "a:1>4 b", edit: Add("c", 1), refused: "a goes from weight 1 to 4"},
		{name: "drain", before: "a b", edit: Drain("a"), after: "a- b"},
		{name: "drain the last", before: "a b!", edit: Drain("a"), refused: "a is the only cell"},
		{name: "drain twice", before: "a- b", edit: Drain("a"), refused: "is being drained already"},
		{name: "drain what failed", before: "a! b", edit: Drain("a"), refused: "owns nothing"},
		{name: "drain what is not there", before: "a b", edit: Drain("x"), refused: "there is no cell x in the topology; its cells are a, b"},
		{name: "drain during a change", before: "a b c+", edit: Drain("a"), refused: "c is joining"},
		{name: "weight", before: "a b", edit: Weight("b", 3), after: "a b:1>3"},
		{name: "the same weight", before: "a b", edit: Weight("b", 1), refused: "has weight 1 already"},
		{name: "no weight", before: "a b", edit: Weight("b", 0), refused: "cellplane cells drain b"},
		{name: "weight of what failed", before: "a b!", edit: Weight("b", 2), refused: "owns nothing"},
		{name: "weight during a change", before: "a b-", edit: Weight("a", 2), refused: "b is leaving"},
		{name: "fail", before: "a b", edit: Fail("b"), after: "a b!"},
		{name: "fail during a change", before: "a b c+", edit: Fail("b"), after: "a b! c+"},
		{name: "fail while the weight grows", before: "a b:1>2", edit: Fail("b"), after: "a b:2!"},
		{name: "fail while the weight shrinks", before: "a b:2>1", edit: Fail("b"), after: "a b:2!"},
		{name: "fail the last", before: "a b!", edit: Fail("a"), refused: "no other can take over its slots"},
		{name: "fail twice", before: "a b!", edit: Fail("b"), refused: "failed already"},
		{name: "rejoin", before: "a b:3!", edit: Rejoin("b"), after: "a b:3+"},
		{name: "rejoin what has not failed", before: "a b", edit: Rejoin("b"), refused: "b has not failed: its state is Normal"},
		{name: "rejoin during a change", before: "a b! c+", edit: Rejoin("b"), refused: "c is joining"},
		{name: "reverse a join", before: "a b+", edit: Reverse, after: "a b-"},
		{name: "reverse a drain", before: "a b-", edit: Reverse, after: "a b+"},
		{name: "reverse a weight", before: "a b:1>3", edit: Reverse, after: "a b:3>1"},
		{name: "reverse nothing", before: "a b", edit: Reverse, refused: "no change is under way"},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := topology(test.before)
			err := test.edit(&spec)
			if test.refused != "" {
				if err == nil || !strings.Contains(err.Error(), test.refused) {
					t.Fatalf("the edit returns %v, want %q", err, test.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(topology(test.after), spec); diff != "" {
				t.Errorf("the topology differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlanLeavesTheTopologyAlone(t *testing.T) {
	spec := topology("a b")
	if _, err := Preview(spec, Add("c", 1)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(topology("a b"), spec); diff != "" {
		t.Errorf("planning changed the topology:\n%s", diff)
	}
}

// TestPlanMovesWhatItMust checks random topologies: a joining cell only gains slots, a leaving one only loses slots,
// and shares follow weights.
func TestPlanMovesWhatItMust(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var spec v1alpha1.CellTopologySpec
		for i := range rapid.IntRange(2, 8).Draw(t, "cells") {
			spec.Cells = append(spec.Cells, v1alpha1.TopologyCell{Name: fmt.Sprintf("cell-%d", i), Weight: rapid.Int32Range(1, 5).Draw(t, "weight"), State: v1alpha1.CellStateNormal})
		}
		adds := rapid.Bool().Draw(t, "adds")
		edit, changed := Drain("cell-0"), "cell-0"
		if adds {
			edit, changed = Add("cell-x", rapid.Int32Range(1, 5).Draw(t, "new weight")), "cell-x"
		}
		plan, err := Preview(spec, edit)
		if err != nil {
			t.Fatal(err)
		}
		for _, flow := range plan.Flows {
			if adds && flow.To != changed || !adds && flow.From != changed {
				t.Fatalf("%d slots move from %s to %s", len(flow.Slots), flow.From, flow.To)
			}
		}
		var before, after float64
		for _, share := range plan.Shares {
			before, after = before+share.Before, after+share.After
			// The share of a cell without a seed is binomial; five standard deviations suffice for 8 cells of any
			// weight.
			if tolerance := 5 * math.Sqrt(share.Ideal*(1-share.Ideal)/slots.Count); math.Abs(share.After-share.Ideal) > tolerance {
				t.Fatalf("%s gets %.4f of the slots, ideal is %.4f", share.Cell, share.After, share.Ideal)
			}
		}
		if math.Abs(before-1) > 1e-9 || math.Abs(after-1) > 1e-9 {
			t.Fatalf("shares sum up to %f before and %f after", before, after)
		}
	})
}

// TestCellsJoinInBalance adds cells one after the other, and drains each: shares stay close to weights.
func TestCellsJoinInBalance(t *testing.T) {
	spec, err := First("cell-a", "cell-b", "cell-c")
	if err != nil {
		t.Fatal(err)
	}
	within := func(name string, edit Edit, tolerance float64) {
		t.Helper()
		plan, err := Preview(spec, edit)
		if err != nil {
			t.Fatal(err)
		}
		for _, share := range plan.Shares {
			if share.Ideal > 0 && math.Abs(share.After/share.Ideal-1) > tolerance {
				t.Errorf("after %s, %s has %.4f of the slots where its weight says %.4f", name, share.Cell, share.After, share.Ideal)
			}
		}
	}
	for i := range 9 {
		name, weight := fmt.Sprintf("more-%d", i), int32(1+i%2)
		within("adding "+name, Add(name, weight), 0.02)
		plan, err := Preview(spec, Add(name, weight))
		if err != nil {
			t.Fatal(err)
		}
		if plan.Joins == nil || plan.Joins.Name != name {
			t.Fatalf("the plan says that %v joins, not %s", plan.Joins, name)
		}
		joins := *plan.Joins
		joins.State = v1alpha1.CellStateNormal
		spec.Cells = append(spec.Cells, joins)
		within("draining "+name, Drain(name), 0.02)
	}
	if plan, err := Preview(spec, Drain("cell-a")); err != nil || plan.Joins != nil {
		t.Errorf("%v joins when another cell leaves (%v)", plan.Joins, err)
	}
}
