package backup

import (
	"slices"
	"testing"

	"github.com/cellplane/cellplane/internal/slots"
)

// TestElsewhere tells a copy that is left from an earlier topology from one that counts.
func TestElsewhere(t *testing.T) {
	scope := func(all ...slots.Slot) (set slotSet) {
		for _, slot := range all {
			set.add(slot)
		}
		return set
	}
	received := Received{{target: "a", scope: scope(1, 2), through: 7}, {target: "b", scope: scope(2, 3), through: 9}}
	for _, test := range []struct {
		slot   slots.Slot
		target string
		want   bool
	}{
		{1, "a", false}, {1, "b", true}, {1, "c", true},
		{2, "a", false}, {2, "b", false}, {2, "c", true},
		{3, "a", true}, {3, "b", false},
		{4, "a", false}, {4, "b", false}, {4, "c", false}, // nobody has it completely: any copy may be the best
	} {
		if got := received.Elsewhere(test.slot, test.target); got != test.want {
			t.Errorf("a copy of slot %d in %s: got %v, want %v", test.slot, test.target, got, test.want)
		}
	}
	if got := received.Revisions(); !slices.Equal(got, []int64{7, 9}) {
		t.Errorf("got the revisions %v", got)
	}
}
