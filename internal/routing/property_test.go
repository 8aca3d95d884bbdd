package routing

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
)

// views are topologies in the order of their epochs.
func views(t *rapid.T) []*View {
	changes := []string{"a", "a->b", "b", "b->d", "d"}
	var all []*View
	for i, change := range changes {
		view := mustView(change, int64(i+1))
		view.Ready = rapid.Bool().Draw(t, "ready")
		if i+1 < len(changes) && rapid.Bool().Draw(t, "announced") {
			view.Next = mustView(changes[i+1], int64(i+2)).Map
		}
		all = append(all, view)
	}
	return all
}

func requests() *rapid.Generator[Request] {
	return rapid.Custom(func(t *rapid.T) Request {
		return Request{
			Op:        rapid.SampledFrom([]Op{Read, Change, Create, Attach, Stream}).Draw(t, "op"),
			Placement: rapid.SampledFrom([]placement.Place{placement.ByName, placement.ByTemplate, placement.Anywhere}).Draw(t, "placement"),
			Slot:      slot,
			Blind:     rapid.Bool().Draw(t, "blind"),
			Nameless:  rapid.Bool().Draw(t, "nameless"),
		}
	})
}

// TestAnyAnswers gives arbitrary answers. The machine ends, and sends writes only to an owner of the slot or to where it has seen the
// object; to the old owner only what cannot create anything.
func TestAnyAnswers(t *testing.T) {
	states := rapid.SampledFrom([]State{Absent, Live, Frozen, Moved})
	rapid.Check(t, func(t *rapid.T) {
		known := views(t)
		request := requests().Draw(t, "request")
		now := time.Unix(1, 0)
		m := New(request, known[0], bounds)
		seen := map[slots.Index]State{}
		action := m.Start(now)
		for steps := 0; !action.Final(); steps++ {
			if steps > 20_000 {
				t.Fatal("the machine does not end")
			}
			now = now.Add(time.Duration(rapid.Int64Range(1, 400).Draw(t, "ms")) * time.Millisecond)
			in := Input{
				State: states.Draw(t, "state"), Version: "7", Stale: rapid.Bool().Draw(t, "stale"), Unreachable: rapid.Bool().Draw(t, "unreachable"),
				Result: rapid.SampledFrom([]Result{Done, Created, NotFound, Conflict, StaleEpoch, ObjectFrozen, ObjectAbsent}).Draw(t, "result"),
			}
			switch action.Kind {
			case Look:
				seen[action.Cell] = in.State
			case LookAll:
				for _, cell := range action.Cells {
					in.Found = append(in.Found, Sighting{Cell: cell, State: states.Draw(t, "state"), Version: "7"})
					seen[cell] = in.Found[len(in.Found)-1].State
				}
			case Send:
				checkWrite(t, request, m.View(), action, seen)
			case AwaitView:
				if len(known) > 1 && rapid.Bool().Draw(t, "arrives") {
					known = known[1:]
					in.View, seen = known[0], map[slots.Index]State{}
				}
			}
			action = m.Step(now, in)
		}
		if action.Kind == Forward && request.Op != Stream {
			t.Fatal("only streams are forwarded")
		}
	})
}

func checkWrite(t *rapid.T, request Request, view *View, action Action, seen map[slots.Index]State) {
	route := view.Locate(slot)
	switch {
	case request.Op == Read || request.Op == Stream:
		t.Fatal("a read was sent as a write")
	case action.Cell == route.New:
	case action.Cell != route.Old && request.Placement == placement.ByName:
		t.Fatalf("a write was sent to %s, which does not own the slot", view.Name(action.Cell))
	case !seen[action.Cell].Exists():
		t.Fatalf("a write was sent to %s, where the object is %s", view.Name(action.Cell), seen[action.Cell])
	case request.Op == Change && action.Cell == route.Old && !action.Write.Existing && action.Write.Pinned == "":
		t.Fatal("a write to the old cell could create the object, or change it while it is frozen")
	}
	if request.Op == Change && seen[action.Cell] == Frozen {
		t.Fatal("a write was sent to a frozen object")
	}
	if action.Write.Epoch != view.Epoch() && action.Write.Epoch != view.Latest() {
		t.Fatalf("a write carries the epoch %d", action.Write.Epoch)
	}
}

// TestWhileMoving moves an object that exists all the time, as the mover does, while a request is routed by views that arrive late. The
// object never seems to be absent, is not created a second time, and no write reaches it while it is frozen or after it has moved.
func TestWhileMoving(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := mustView("a", 1), mustView("a->b", 2)
		announced := *before
		announced.Next = after.Map
		w := newWorld(before)
		w.cells["a"].Sighting = Sighting{State: Live, Version: "1"}
		at := time.Duration(0)
		next := func(apply func(*world)) time.Duration {
			at += time.Duration(rapid.IntRange(0, 20).Draw(t, "ms")) * time.Millisecond
			w.at(at, apply)
			return at
		}
		late := func() time.Duration {
			return at + time.Duration(rapid.IntRange(0, 100).Draw(t, "late"))*time.Millisecond
		}
		w.at(late(), func(w *world) {
			if w.view.Epoch() == 1 {
				w.view = &announced
			}
		})
		for _, name := range []string{"a", "b", "c"} {
			next(func(w *world) { w.cells[name].floor = 2 })
		}
		w.at(late(), func(w *world) { w.view = after })
		next(func(w *world) { w.cells["a"].Sighting = Sighting{State: Frozen, Version: "2"} })
		next(func(w *world) { w.cells["b"].Sighting = Sighting{State: Frozen, Version: "11"} })
		next(func(w *world) { w.cells["a"].Sighting = Sighting{State: Moved, Version: "3"} })
		next(func(w *world) { w.cells["b"].Sighting = Sighting{State: Live, Version: "12"} })
		if rapid.Bool().Draw(t, "cleaned up") {
			next(func(w *world) { w.cells["a"].Sighting = Sighting{} })
		}
		w.elapse(time.Duration(rapid.IntRange(0, 150).Draw(t, "begin")) * time.Millisecond)
		w.slow = func() time.Duration { return time.Duration(rapid.IntRange(0, 5).Draw(t, "slow")) * time.Millisecond }

		request := Request{Op: rapid.SampledFrom([]Op{Read, Change, Create}).Draw(t, "op"), Placement: placement.ByName, Slot: slot, Blind: rapid.Bool().Draw(t, "blind")}
		verdict, read, result := w.run(request, !request.Blind && rapid.Bool().Draw(t, "upsert"))
		switch {
		case verdict.Kind == Refuse && verdict.Reason == AlreadyExists && request.Op == Create:
		case verdict.Kind != Serve:
			t.Fatalf("not answered:\n%s", w.story())
		case request.Op == Read && !read.Exists():
			t.Fatalf("an object that exists was reported as %s:\n%s", read, w.story())
		case request.Op == Change && (result != Done || w.written != Live):
			t.Fatalf("a write was answered with %s by an object that was %s:\n%s", result, w.written, w.story())
		case request.Op == Create && result != Conflict:
			t.Fatalf("an object that exists was created again:\n%s", w.story())
		}
	})
}
