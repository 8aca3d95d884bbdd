package routing

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
	"github.com/cellplane/cellplane/internal/placement"
)

// TestSlowCreations creates an object while its slot moves from a to b. The cell takes its time, somebody else creates an object of the same
// name, changes or deletes what b has, and the mover moves or discards what a has. A creation that is acknowledged is never discarded, and one
// that is refused because of another object is.
func TestSlowCreations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(mustView("a", 1))
		w.slow = func() time.Duration { return milliseconds(t, "slow", 0, 9) }
		w.newFirst = func() bool { return rapid.Bool().Draw(t, "new first") }
		answered := milliseconds(t, "answered", 0, 600)
		w.cells["a"].answers = []delayedResult{{Created, answered}}
		w.at(answered*time.Duration(rapid.IntRange(0, 10).Draw(t, "stored"))/10, func(w *world) {
			w.cells["a"].Sighting = Sighting{State: Live, Version: "5", UID: ownUID}
		})
		fenced := milliseconds(t, "fenced", 10, 600)
		w.at(fenced, func(w *world) { w.raise(2) })
		change := slotChange{t: t, world: w}
		moving := fenced + bounds.WriteDrain + milliseconds(t, "moving", 0, 300)
		w.at(moving, change.step)
		w.at(moving+milliseconds(t, "known", 0, 100), func(w *world) { w.view = mustView("a->b", 2) })
		w.at(moving+milliseconds(t, "other looks", 0, 100), change.otherCreates)
		if rapid.Bool().Draw(t, "used") {
			change.used = true
			w.at(moving+milliseconds(t, "changed", 0, 200), change.update)
			w.at(moving+milliseconds(t, "deleted", 0, 200), change.remove)
			w.at(moving+milliseconds(t, "another", 0, 300), change.otherCreates)
		}

		verdict, _, _ := w.run(Request{Op: Create, Placement: placement.ByName, Slot: slot}, false)
		story := w.story()
		w.slow = nil
		for len(w.events) > 0 {
			w.elapse(time.Second)
		}
		switch {
		case verdict.Kind == Serve && !change.moved:
			t.Fatalf("an acknowledged creation is lost:\n%s", story)
		case verdict.Kind == Refuse && verdict.Reason == AlreadyExists && (change.moved || !change.discarded):
			t.Fatalf("a creation that succeeded was refused:\n%s", story)
		case verdict.Kind == Refuse && verdict.Reason == HeldTooLong:
			t.Fatalf("a client is told to repeat a creation that may have succeeded:\n%s", story)
		case verdict.Kind == Serve || change.used || verdict.Reason == AlreadyExists:
		case change.moved || change.discarded:
			t.Fatalf("it was not found out what became of the creation:\n%s", story)
		}
	})
}

func milliseconds(t *rapid.T, label string, from, to int) time.Duration {
	return time.Duration(rapid.IntRange(from, to).Draw(t, label)) * time.Millisecond
}

// raise lets all cells refuse epochs before the given one.
func (w *world) raise(epoch int64) {
	for _, cell := range w.cells {
		cell.floor = epoch
	}
}

// slotChange is the change that moves the slot from a to b.
type slotChange struct {
	t        *rapid.T
	world    *world
	revision int
	// used says that users change what they find in b.
	used bool
	// moved and discarded say what the mover has done with the object of the request.
	moved, discarded bool
}

func (c *slotChange) after(label string, from, to int, apply func(*world)) {
	c.world.at(c.world.now.Sub(c.world.start)+milliseconds(c.t, label, from, to), apply)
}

func (c *slotChange) version() string {
	c.revision++
	return fmt.Sprint(100 + c.revision)
}

// step takes the next step of the mover, or ends the change.
func (c *slotChange) step(w *world) {
	statuses := map[State]handover.Status{Absent: handover.Absent, Live: handover.Active, Frozen: handover.Frozen, Moved: handover.Moved}
	from, to := w.cells["a"], w.cells["b"]
	state := handover.State{Old: statuses[from.State], New: statuses[to.State], Equal: from.UID == to.UID, Verified: true}
	switch step := state.Next(); step {
	case handover.Freeze:
		from.State = Frozen
	case handover.Copy:
		to.Sighting = Sighting{State: Frozen, Version: c.version(), UID: from.UID}
	case handover.Commit, handover.Discard:
		from.State, from.CopiedAt = Moved, "b/"+to.Version
		c.discarded = c.discarded || step == handover.Discard
	case handover.Activate:
		to.State, to.Version = Live, c.version()
		c.moved = true
	default:
		if rapid.IntRange(0, 9).Draw(c.t, "ends") == 0 {
			c.after("ended", 0, 50, func(w *world) { w.raise(3) })
			c.after("end known", 300, 400, func(w *world) {
				w.view = mustView(rapid.SampledFrom([]string{"b", "a+b"}).Draw(c.t, "after"), 3)
			})
			return
		}
	}
	c.after("step", 0, 20, c.step)
}

// otherCreates looks in a, as creations do, and then stores an object in b if there is none.
func (c *slotChange) otherCreates(w *world) {
	if w.cells["a"].State.Exists() {
		return
	}
	c.after("other stores", 0, 100, func(w *world) {
		if w.cells["b"].State == Absent {
			w.cells["b"].Sighting = Sighting{State: Live, Version: c.version(), UID: "other"}
		}
	})
}

func (c *slotChange) update(w *world) {
	if w.cells["b"].State == Live {
		w.cells["b"].Version = c.version()
	}
}

func (c *slotChange) remove(w *world) {
	if w.cells["b"].State == Live {
		w.cells["b"].Sighting = Sighting{}
	}
}
