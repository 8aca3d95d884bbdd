package handover

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

// TestScenarios runs the scenarios in testdata. Commands:
//
//	next old=<status> new=<status> [equal] [verified]
//	    prints the next step of an object.
//	slot
//	    starts over with the objects named in the input: web is a template, web* its binding, web@m1 a Work.
//	run [until=<step>] [times=<n>]
//	    takes actions in order, until there are none, or until a step was taken, by default once. Prints them and what the cells hold.
//	round
//	    takes all actions that are ready now and prints them.
//	lose
//	    takes the first ready action and loses the answer.
//	crash, reverse
//	    replaces the mover, or turns the change back.
//	write, scale, delete, bind, bind-late, create <name>
//	    are requests of clients and of the old cell's engine. Prints whether they were accepted.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			output := w.command(t, d)
			if err := w.check(); err != nil {
				d.Fatalf(t, "%v\n%s", err, w)
			}
			return output
		})
	})
}

func (w *world) command(t *testing.T, d *datadriven.TestData) string {
	target := func() string { return keyOf(d.CmdArgs[0].Key) }
	accepted := func(ok bool) string {
		if ok {
			return "accepted\n"
		}
		return "refused\n"
	}
	switch d.Cmd {
	case "next":
		s := State{Old: scanStatus(t, d, "old"), New: scanStatus(t, d, "new"), Equal: d.HasArg("equal"), Verified: d.HasArg("verified")}
		return s.Next().String() + "\n"
	case "slot":
		*w = *newWorld()
		for name := range strings.FieldsSeq(d.Input) {
			w.exist(keyOf(name))
		}
		return w.String()
	case "run":
		return w.run(t, d)
	case "round":
		w.log = nil
		for range len(w.ready()) {
			w.perform(0, false)
		}
		return strings.Join(w.log, "\n") + "\n"
	case "lose":
		w.log = nil
		w.ready()
		w.perform(0, true)
		return strings.Join(w.log, "\n") + "\n" + w.String()
	case "crash":
		w.crash()
	case "reverse":
		w.reverse()
	case "create":
		w.create(target())
	case "write":
		return accepted(w.write(target()))
	case "scale":
		return accepted(w.scale(target()))
	case "delete":
		return accepted(w.remove(target()))
	case "bind":
		return accepted(w.bind(target(), false))
	case "bind-late":
		return accepted(w.bind(target(), true))
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	return w.String()
}

func (w *world) run(t *testing.T, d *datadriven.TestData) string {
	until, times := "", 1
	d.MaybeScanArgs(t, "until", &until)
	d.MaybeScanArgs(t, "times", &times)
	w.log = nil
	for taken := 0; taken < times && !w.finished(); {
		step := w.flight[0].Step.String()
		w.perform(0, false)
		if step == until {
			taken++
		}
		if err := w.check(); err != nil {
			d.Fatalf(t, "after %s: %v\n%s", w.log[len(w.log)-1], err, w)
		}
	}
	return strings.Join(append(w.log, w.String()), "\n")
}

func scanStatus(t *testing.T, d *datadriven.TestData, key string) Status {
	var text string
	d.ScanArgs(t, key, &text)
	for _, s := range []Status{Absent, Active, Frozen, Moved} {
		if s.String() == text {
			return s
		}
	}
	d.Fatalf(t, "unknown status %s", text)
	return Absent
}

// TestNothingIsLost lets clients and engines write, loses answers, crashes movers and aborts changes at random, while
// the actions of a mover are done in any order. A mover that is left alone finishes, and everything is
// in use in the new cell.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		templates := []string{"web", "db"}
		for _, template := range templates {
			for _, name := range []string{template, template + "*", template + "@m1"} {
				if rapid.Bool().Draw(t, "has "+name) {
					w.exist(keyOf(name))
				}
			}
		}
		pick := func() string {
			return keyOf(rapid.SampledFrom([]string{"web", "db", "web*", "db*"}).Draw(t, "object"))
		}
		for range rapid.IntRange(0, 80).Draw(t, "length") {
			event := rapid.SampledFrom([]string{
				"act", "act", "act", "act", "act", "act", "lose", "write", "create", "delete", "scale", "bind", "bind late", "crash", "reverse", "purge",
			}).Draw(t, "event")
			w.event(t, event, pick)
			if err := w.check(); err != nil {
				t.Fatalf("after %s: %v\n%s%v", event, err, w, w.log)
			}
		}
		for range 200 {
			if w.finished() {
				break
			}
			w.perform(rapid.IntRange(0, len(w.flight)-1).Draw(t, "action"), false)
			if err := w.check(); err != nil {
				t.Fatalf("%v\n%s%v", err, w, w.log)
			}
		}
		if !w.finished() {
			t.Fatalf("the mover does not finish: %v", w.flight)
		}
		for _, key := range w.keys() {
			if at := w.located(key); KindOf(key) != Work && at >= 0 && (at == w.old || w.at(at, key).status != Active) {
				t.Fatalf("%s has not moved\n%s", name(key), w)
			}
		}
	})
}

func (w *world) event(t *rapid.T, event string, pick func() string) {
	switch event {
	case "act", "lose":
		if flight := w.ready(); len(flight) > 0 {
			w.perform(rapid.IntRange(0, len(flight)-1).Draw(t, "action"), event == "lose")
		} else {
			w.finished()
		}
	case "write":
		w.write(pick())
	case "create":
		w.create(pick())
	case "delete":
		w.remove(pick())
	case "scale":
		w.scale(pick())
	case "bind", "bind late":
		w.bind(keyOf(rapid.SampledFrom([]string{"web", "db"}).Draw(t, "template")), event == "bind late")
	case "crash":
		w.crash()
	case "reverse":
		if !w.outdatedCopy() {
			w.reverse()
		}
	case "purge":
		if other := w.at(1-w.old, pick()); other.status == Moved {
			*other = held{}
		}
	}
}

// TestCrashes stops the mover after each of its actions in turn, loses the answer, or turns the change back, and lets
// another finish.
func TestCrashes(t *testing.T) {
	begin := func() *world {
		w := newWorld()
		for _, name := range []string{"web", "web*", "web@m1", "db", "db*"} {
			w.exist(keyOf(name))
		}
		return w
	}
	for _, test := range []struct {
		name string
		stop func(*world)
	}{
		{"crash", (*world).crash},
		{"lost answer", (*world).restart},
		{"reverse", (*world).reverse},
		{"reverse twice", func(w *world) { w.reverse(); w.reverse() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			for after := 1; ; after++ {
				w, stopped := begin(), false
				for actions := 0; !w.finished(); {
					w.perform(0, false)
					if actions++; actions == after {
						test.stop(w)
						stopped = true
					}
					if err := w.check(); err != nil {
						t.Fatalf("stopped after action %d, at action %d: %v\n%s", after, actions, err, w)
					}
					if actions > 200 {
						t.Fatalf("stopped after action %d, the mover does not finish: %s", after, fmt.Sprint(w.flight))
					}
				}
				if !stopped {
					return
				}
			}
		})
	}
}

// TestStrays finds an object in a second cell under the key of one that the owner of the slot has. The owner's moves,
// and the stray is not even looked at before that: it could otherwise overwrite the copy.
func TestStrays(t *testing.T) {
	s := NewSlot("a")
	var taken []string
	next := map[Object]State{{"a", "deployments/web"}: {Old: Active}, {"c", "deployments/web"}: {Old: Active, New: Active}}
	for ready := s.Ready(); len(ready) > 0; ready = s.Ready() {
		for _, action := range ready {
			taken = append(taken, strings.TrimSpace(action.Object.Cell+" "+action.Step.String()))
			r := Result{Action: action, State: next[action.Object]}
			switch action.Step {
			case List:
				for _, object := range []Object{{"c", "deployments/web"}, {"a", "deployments/web"}} {
					if next[object].Old != Moved {
						r.Found = append(r.Found, object)
					}
				}
			case Freeze, Commit, Discard:
				r.State.Old = action.Step.Result()
			case Copy, Activate:
				r.State.New, r.State.Equal = action.Step.Result(), action.Step == Copy
			case Verify:
				r.State.Verified = true
			}
			next[action.Object] = r.State
			s.Apply(r)
		}
	}
	want := "list, a load, a freeze, a copy, a verify, list, a commit, a activate, c load, list, c discard"
	if got := strings.Join(taken, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
