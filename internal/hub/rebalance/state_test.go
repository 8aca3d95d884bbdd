package rebalance

import (
	"testing"

	"pgregory.net/rapid"
)

func TestNext(t *testing.T) {
	for _, test := range []struct {
		situation Situation
		want      Step
	}{
		// The ordinary way.
		{Situation{Old: Active, New: Absent}, Freeze},
		{Situation{Old: Frozen, New: Absent}, Copy},
		{Situation{Old: Frozen, New: Frozen, Equal: true}, Verify},
		{Situation{Old: Frozen, New: Frozen, Equal: true, Verified: true}, Commit},
		{Situation{Old: Left, New: Frozen}, Activate},
		{Situation{Old: Left, New: Active}, Done},
		// Something of an earlier move is in the way.
		{Situation{Old: Active, New: Left}, Freeze},
		{Situation{Old: Frozen, New: Left}, Copy},
		// The original was changed by a request that hides what it is about: what was copied is worth nothing.
		{Situation{Old: Frozen, New: Frozen}, Copy},
		{Situation{Old: Frozen, New: Frozen, Verified: true}, Copy},
		{Situation{Old: Active, New: Frozen}, Freeze},
		// A change that was turned back: the copy is now the original, and what it was copied from may be gone.
		{Situation{Old: Absent, New: Frozen}, Activate},
		{Situation{Old: Absent, New: Active}, Done},
		{Situation{Old: Absent, New: Absent}, Done},
		{Situation{Old: Absent, New: Left}, Done},
		// It was deleted after it had moved.
		{Situation{Old: Left, New: Absent}, Done},
		{Situation{Old: Left, New: Left}, Done},
		// The new cell has an object of its own, the only one that clients have seen.
		{Situation{Old: Active, New: Active}, Discard},
		{Situation{Old: Frozen, New: Active}, Discard},
		{Situation{Old: Active, New: Active, Equal: true, Verified: true}, Discard},
	} {
		if got := test.situation.Next(); got != test.want {
			t.Errorf("old %v, new %v, equal %t, verified %t: got %v, want %v", test.situation.Old, test.situation.New, test.situation.Equal, test.situation.Verified, got, test.want)
		}
	}
}

// world is two cells and one object, as a mover and clients see it.
type world struct {
	cells    [2]held
	old      int // the cell that is left
	verified bool
	acked    int // the version that a client was last told it had written, 0 if the object does not exist
}

type held struct {
	standing Standing
	version  int
}

func (w *world) situation() Situation {
	old, other := w.cells[w.old], w.cells[1-w.old]
	return Situation{Old: old.standing, New: other.standing, Equal: old.version == other.version && old.standing == other.standing, Verified: w.verified}
}

func (w *world) step(step Step) {
	old, other := &w.cells[w.old], &w.cells[1-w.old]
	switch step {
	case Freeze:
		old.standing = Frozen
	case Copy:
		*other, w.verified = *old, false
	case Verify:
		w.verified = true
	case Commit, Discard:
		old.standing = Left
	case Activate:
		other.standing = Active
	case Done:
	}
}

// located returns the cell in which clients find the object, as gateways look for it: the new one first.
func (w *world) located() int {
	switch old, other := w.cells[w.old], w.cells[1-w.old]; {
	case other.standing == Active:
		return 1 - w.old
	case old.standing == Active || old.standing == Frozen:
		return w.old
	case other.standing == Frozen:
		return 1 - w.old
	default:
		return -1
	}
}

// TestNothingIsLost lets clients write, movers crash and changes be turned back at random. Clients find at any time what they were
// last told, at most one cell accepts writes, and a mover that is left alone comes to an end.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{}
		if rapid.Bool().Draw(t, "exists") {
			w.cells[0], w.acked = held{Active, 1}, 1
		}
		next := 2
		for range rapid.IntRange(0, 40).Draw(t, "length") {
			switch rapid.SampledFrom([]string{"move", "move", "move", "write", "create", "delete", "crash", "turn back", "purge"}).Draw(t, "what") {
			case "move":
				w.step(w.situation().Next())
			case "write":
				if at := w.located(); at >= 0 && w.cells[at].standing == Active {
					w.cells[at].version, w.acked = next, next
				}
			case "create":
				if w.located() < 0 {
					w.cells[1-w.old], w.acked = held{Active, next}, next
				}
			case "delete":
				if at := w.located(); at >= 0 && w.cells[at].standing == Active {
					w.cells[at], w.acked = held{}, 0
				}
			case "crash":
				w.verified = false
			case "turn back":
				w.old, w.verified = 1-w.old, false
			case "purge":
				if other := &w.cells[1-w.old]; other.standing == Left {
					*other = held{}
				}
			}
			next++
			w.check(t)
		}
		for range 8 {
			w.step(w.situation().Next())
			w.check(t)
		}
		if step := w.situation().Next(); step != Done {
			t.Fatalf("the mover does not end: %v", step)
		}
		if at := w.located(); at >= 0 && w.cells[at].standing != Active {
			t.Fatalf("the object stays %v", w.cells[at].standing)
		}
		if at := w.located(); at == w.old {
			t.Fatal("the object has not moved")
		}
	})
}

func (w *world) check(t *rapid.T) {
	if w.cells[0].standing == Active && w.cells[1].standing == Active {
		t.Fatal("both cells accept writes")
	}
	at := w.located()
	if at < 0 && w.acked != 0 {
		t.Fatalf("version %d is lost", w.acked)
	}
	if at >= 0 && w.cells[at].version != w.acked {
		t.Fatalf("clients read version %d, and were told %d", w.cells[at].version, w.acked)
	}
}
