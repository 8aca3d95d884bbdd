package replicate

import (
	"slices"
	"testing"
)

// TestTurns takes more turns than there are. Whoever gets none is returned when a turn ends, and can take it.
func TestTurns(t *testing.T) {
	var turns turns
	for i := range inspections {
		if !turns.take(objectKey{kind: i}) {
			t.Fatalf("turn %d of %d is not free", i+1, inspections)
		}
	}
	late := []objectKey{{name: "a"}, {name: "b"}}
	for _, key := range late {
		if turns.take(key) {
			t.Fatal("there are more turns than there should be")
		}
	}
	if waiting := turns.end(); !slices.Equal(waiting, late) {
		t.Errorf("after a turn %v try again, want %v", waiting, late)
	}
	if !turns.take(late[1]) || turns.take(late[0]) {
		t.Error("the turn that ended is not free for exactly one")
	}
	if waiting := turns.end(); !slices.Equal(waiting, late[:1]) {
		t.Errorf("after another turn %v try again, want %v", waiting, late[:1])
	}
	if waiting := turns.end(); waiting != nil {
		t.Errorf("%v try again, but nobody waits", waiting)
	}
}
