package routing

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
)

// TestScenarios runs the scenarios in testdata/scenarios. The object's slot moves from cell a to cell b; cell c takes no part. Commands:
//
//	topology CHANGE epoch=N [not-ready] [next=CHANGE next-epoch=N] [all-moved] [with-hub]
//
// sets the view. CHANGE is a->b during the move, a before it and b after it, or a+b if cell a stays. Further moves may go to cell d.
//
//	read | change | create | attach | stream [by-template | anywhere] [on-hub] [blind] [upsert] [nameless] [dry-run]
//
// routes a request and prints what the machine does. The input describes the cells, and events at times after the start:
//
//	a: frozen@7              cell a has the object, in a state and a resourceVersion
//	a: floor 6               cell a refuses epochs below 6
//	a: answers created after 300ms
//	a: unreachable
//	a: reachable
//	a: live@7 own            the object is the one that the request has created
//	a: moved@7 own b/9       its copy, or the reason why it was discarded, is that version in cell b
//	5ms b: live@9            at 5ms
//	5ms topology b epoch=6
//
// "list" prints the order of a list, "shown" which copies it shows, and "watch" what a watch makes of an event.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		view := mustView("a->b", 5)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "topology":
				var words []string
				for _, argument := range d.CmdArgs {
					words = append(words, argument.String())
				}
				view = parseTopology(t, words)
				return ""
			case "list":
				return runList(t, d, view)
			case "shown":
				return runShown(t, d, view)
			case "watch":
				return runWatch(t, d, view)
			default:
				return runRequest(t, d, view)
			}
		})
	})
}

func parseTopology(t *testing.T, words []string) *View {
	t.Helper()
	options := map[string]string{}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		options[key] = value
	}
	view := mustView(words[0], parseInt(t, options["epoch"]))
	_, notReady := options["not-ready"]
	view.Ready = !notReady
	_, view.Hub = options["with-hub"]
	if next := options["next"]; next != "" {
		view.Next = mustView(next, parseInt(t, options["next-epoch"])).Map
	}
	if _, moved := options["all-moved"]; moved {
		view.MovedSlots = make([]byte, slots.Count/8)
		for i := range view.MovedSlots {
			view.MovedSlots[i] = 0xff
		}
	}
	return view
}

func parseInt(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func runRequest(t *testing.T, d *datadriven.TestData, view *View) string {
	t.Helper()
	op, known := map[string]Op{"read": Read, "change": Change, "create": Create, "attach": Attach, "stream": Stream}[d.Cmd]
	if !known {
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	request := Request{Op: op, Placement: placement.ByName, Slot: slot, Blind: d.HasArg("blind"), Versioned: d.HasArg("versioned"), Nameless: d.HasArg("nameless"), DryRun: d.HasArg("dry-run"), OnHub: d.HasArg("on-hub")}
	switch {
	case d.HasArg("by-template"):
		request.Placement = placement.ByTemplate
	case d.HasArg("anywhere"):
		request.Placement = placement.Anywhere
	}
	w := newWorld(view)
	for line := range strings.Lines(d.Input) {
		w.script(t, strings.TrimSpace(line))
	}
	w.elapse(0)
	w.run(request, d.HasArg("upsert"))
	return w.story()
}

// script takes a line of a scenario.
func (w *world) script(t *testing.T, line string) {
	t.Helper()
	at := time.Duration(0)
	if first, rest, _ := strings.Cut(line, " "); !strings.HasSuffix(first, ":") {
		var err error
		if at, err = time.ParseDuration(first); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		line = rest
	}
	if change, isTopology := strings.CutPrefix(line, "topology "); isTopology {
		view := parseTopology(t, strings.Fields(change))
		w.at(at, func(w *world) { w.view = view })
		return
	}
	name, what, _ := strings.Cut(line, ": ")
	words := strings.Fields(what)
	w.at(at, func(w *world) {
		cell := w.cells[name]
		switch words[0] {
		case "floor":
			cell.floor = parseInt(t, words[1])
		case "unreachable", "reachable":
			cell.unreachable = words[0] == "unreachable"
		case "answers":
			text, delay, _ := strings.Cut(strings.TrimPrefix(what, "answers "), " after ")
			answer := delayedResult{result: parseResult(t, text)}
			if delay != "" {
				answer.after, _ = time.ParseDuration(delay)
			}
			cell.answers = append(cell.answers, answer)
		default:
			state, version, _ := strings.Cut(words[0], "@")
			cell.Sighting = Sighting{State: parseState(t, state), Version: version}
			for _, word := range words[1:] {
				if word == ownUID {
					cell.UID = word
				} else {
					cell.CopiedAt = word
				}
			}
		}
	})
}

func parseState(t *testing.T, text string) State {
	t.Helper()
	for _, state := range []State{Absent, Live, Frozen, Moved} {
		if state.String() == text {
			return state
		}
	}
	t.Fatalf("unknown state %q", text)
	return Absent
}

func parseResult(t *testing.T, text string) Result {
	t.Helper()
	for result := Done; result <= ObjectAbsent; result++ {
		if result.String() == text {
			return result
		}
	}
	t.Fatalf("unknown result %q", text)
	return Done
}

// runList prints the order of a list: "list [anywhere] [old-first] [past]". The input is as for requests.
func runList(t *testing.T, d *datadriven.TestData, view *View) string {
	t.Helper()
	w := newWorld(view)
	for line := range strings.Lines(d.Input) {
		w.script(t, strings.TrimSpace(line))
	}
	w.elapse(0)
	order := NewFirst
	if d.HasArg("old-first") {
		order = OldFirst
	}
	c := NewCollection(order, bounds)
	view = w.view
	names := func(cells []slots.Index) string {
		var all []string
		for _, i := range cells {
			all = append(all, view.Name(i))
		}
		return strings.Join(all, " ")
	}
	place := placement.ByName
	if d.HasArg("anywhere") {
		place = placement.Anywhere
	}
	start := func() Action { return c.Start(view, view.Places(place), d.HasArg("past")) }
	for action := start(); ; {
		switch action.Kind {
		case List:
			w.note("list %s", names(action.Cells))
			var in Input
			for _, i := range action.Cells {
				if !w.cells[view.Name(i)].unreachable {
					in.Listed = append(in.Listed, i)
				}
			}
			action = c.Step(w.now, in)
		case ConfirmAll:
			var in Input
			for _, i := range action.Cells {
				in.Stale = in.Stale || view.Epoch() < w.cells[view.Name(i)].floor
			}
			w.note("confirm epoch %d with %s: %s", view.Epoch(), names(action.Cells), map[bool]string{true: "refused", false: "accepted"}[in.Stale])
			action = c.Step(w.now, in)
		case AwaitView:
			if next := w.awaitView(view, action.Deadline); next != nil {
				view = next
				action = start()
			} else {
				action = c.Step(w.now, Input{})
			}
		default:
			w.note("%s", w.verdict(view, action))
			return w.story()
		}
	}
}

// runShown prints which of the copies in the input a list shows: "shown [a=VERSION] [b=VERSION]", where the versions are those of the
// cells' lists.
func runShown(t *testing.T, d *datadriven.TestData, view *View) string {
	t.Helper()
	versions := make([]uint64, view.Map.Cells())
	for _, argument := range d.CmdArgs {
		i, _ := view.Index(argument.Key)
		versions[i] = uint64(parseInt(t, argument.Vals[0]))
	}
	var copies []Copy
	for line := range strings.Lines(d.Input) {
		name, what, _ := strings.Cut(strings.TrimSpace(line), ": ")
		i, found := view.Index(name)
		if !found {
			t.Fatalf("%s: unknown cell %q", d.Pos, name)
		}
		object := parseObject(t, what)
		copies = append(copies, Copy{Cell: i, Label: object.Label, CopiedAt: object.CopiedAt})
	}
	if i := view.Shown(view.Locate(slot).New, copies, versions); i >= 0 {
		return "show that of " + view.Name(copies[i].Cell) + "\n"
	}
	return "show none\n"
}

func parseObject(t *testing.T, text string) (object Annotated) {
	t.Helper()
	for word := range strings.FieldsSeq(text) {
		key, value, annotation := strings.Cut(word, "=")
		switch {
		case key == "copied-at":
			object.CopiedAt = value
		case key == "moved-from":
			object.MovedFrom = value
		case !annotation && word == "live":
		case !annotation:
			object.Label = word
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	return object
}

// runWatch prints what a watch makes of the events in the input. The arguments are the changes of earlier topologies that the watch may
// not have read to their end.
func runWatch(t *testing.T, d *datadriven.TestData, view *View) string {
	t.Helper()
	moves := Moves{view}
	for i, argument := range d.CmdArgs {
		moves = append(moves, mustView(argument.Key, view.Epoch()-1-int64(i)))
	}
	var out strings.Builder
	for line := range strings.Lines(d.Input) {
		name, what, _ := strings.Cut(strings.TrimSpace(line), ": ")
		i, found := view.Index(name)
		if !found {
			t.Fatalf("%s: unknown cell %q", d.Pos, name)
		}
		fmt.Fprintf(&out, "%s: %s\n", name, describe(moves, i, parseObject(t, what)))
	}
	return out.String()
}

func describe(moves Moves, cell slots.Index, object Annotated) string {
	if !moves.Owns(cell, slot) {
		return "not an object of this cell"
	}
	what := "stays"
	if move, moving := moves.Of(cell, slot); moving {
		what = fmt.Sprintf("moves from %s to %s", move.From, move.To)
	}
	if other, version, depends := moves.After(cell, slot, object); depends {
		what += fmt.Sprintf(", after %s has reached %d", moves[0].Name(other), version)
	}
	return what
}

func TestParsePlace(t *testing.T) {
	for text, want := range map[string]uint64{"a/5": 5, "a/0": 0, "a": 0, "": 0, "a/-1": 0, "a/x": 0, "a/99999999999999999999": 0} {
		if cell, version, ok := ParsePlace(text); ok != (want != 0) || (ok && (cell != "a" || version != want)) {
			t.Errorf("%q: %q, %d, %v", text, cell, version, ok)
		}
	}
}
