package routing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cellplane/cellplane/internal/slots"
)

// bounds are those of the gateway.
var bounds = Bounds{Hold: 15 * time.Second, Outcome: 30 * time.Second, WriteDrain: 250 * time.Millisecond}

// ownUID is the UID of the object that a request creates.
const ownUID = "own"

// slot belongs to a in the topology a, to b in the topologies b and a+b, and to d in the topology d. So it moves from a to b in the topology a->b.
var slot = func() slots.Slot {
	views := []*View{mustView("a", 1), mustView("b", 1), mustView("d", 1)}
	for slot := range slots.Slot(slots.Count) {
		both := mustView("a+b", 1)
		if both.Name(both.Route(slot).New) == "b" && !slices.ContainsFunc(views, func(view *View) bool { return view.Name(view.Route(slot).New) == "c" }) {
			return slot
		}
	}
	panic("there is no such slot")
}()

// mustView returns a topology of the cell c and a change from one cell to another ("a->b"), or others at rest ("b", "a+b").
func mustView(change string, epoch int64) *View {
	key := fmt.Sprint(change, epoch)
	if compiled, found := maps[key]; found {
		return &View{Map: compiled, Ready: true}
	}
	cells := []slots.Cell{{Name: "c", Weight: 1}}
	if from, to, moving := strings.Cut(change, "->"); moving {
		cells = append(cells, slots.Cell{Name: from, Weight: 1, State: slots.Out}, slots.Cell{Name: to, Weight: 1, State: slots.In})
	} else {
		for name := range strings.SplitSeq(change, "+") {
			cells = append(cells, slots.Cell{Name: name, Weight: 1})
		}
	}
	compiled, err := slots.Compile(epoch, cells)
	if err != nil {
		panic(err)
	}
	maps[key] = compiled
	return &View{Map: compiled, Ready: true}
}

// maps are the compiled topologies.
var maps = map[string]*slots.Map{}

// world is what a request meets: cells that hold the object or not, and views that arrive.
type world struct {
	start, now time.Time
	cells      map[string]*simulatedCell
	view       *View
	events     []worldEvent // in the order of their times
	trace      []string
	// slow is how long a request to a cell takes; nil means no time.
	slow func() time.Duration
	// newFirst says whether a look in several cells reaches the last cell first; nil means never.
	newFirst func() bool
	// written is the state of the object when it was last written to.
	written State
}

type simulatedCell struct {
	Sighting
	floor       int64
	unreachable bool
	// answers are given to the next writes, each after a time.
	answers []delayedResult
}

type delayedResult struct {
	result Result
	after  time.Duration
}

type worldEvent struct {
	at    time.Duration
	apply func(*world)
}

func newWorld(view *View) *world {
	start := time.Unix(1_000_000, 0)
	return &world{start: start, now: start, view: view, cells: map[string]*simulatedCell{"a": {}, "b": {}, "c": {}, "d": {}, "hub": {}}}
}

// elapse lets time pass.
func (w *world) elapse(d time.Duration) {
	w.now = w.now.Add(d)
	for len(w.events) > 0 && w.events[0].at <= w.now.Sub(w.start) {
		event := w.events[0]
		w.events = w.events[1:]
		event.apply(w)
	}
}

// at adds an event.
func (w *world) at(d time.Duration, apply func(*world)) {
	w.events = append(w.events, worldEvent{d, apply})
	slices.SortStableFunc(w.events, func(a, b worldEvent) int { return int(a.at - b.at) })
}

func (w *world) note(format string, arguments ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, arguments...))
}

// story returns the trace. Rounds between waits that repeat are shown once.
func (w *world) story() string {
	var out strings.Builder
	var round, last []string
	repeated := 0
	flush := func() {
		if repeated > 0 {
			fmt.Fprintf(&out, "... and again, %d times\n", repeated)
		}
		repeated = 0
	}
	for _, line := range w.trace {
		round = append(round, line)
		if !strings.HasPrefix(line, "wait ") {
			continue
		}
		if len(round) == len(last) && slices.Equal(round[:len(round)-1], last[:len(last)-1]) {
			repeated++
		} else {
			flush()
			out.WriteString(strings.Join(round, "\n") + "\n")
		}
		round, last = nil, round
	}
	flush()
	out.WriteString(strings.Join(round, "\n") + "\n")
	return out.String()
}

// run routes a request and returns the verdict, and the object or the result that it is about.
func (w *world) run(request Request, upsert bool) (verdict Action, read State, result Result) {
	m := New(request, w.view, bounds)
	for action := m.Start(w.now); ; {
		if w.slow != nil {
			w.elapse(w.slow())
		}
		cell := w.cells[m.View().Name(action.Cell)]
		var in Input
		switch action.Kind {
		case Look, Fetch:
			in.State, in.Version = cell.State, cell.Version
			read = cell.State
			w.note("%s %s: %s", map[Kind]string{Look: "look in", Fetch: "fetch from"}[action.Kind], m.View().Name(action.Cell), cell.State)
		case LookAll:
			in.Found, in.Unreachable = w.lookAll(m.View(), action.Cells)
		case Send:
			result = w.write(m.View(), request, upsert, action)
			in.Result = result
		case Confirm:
			in.Stale, in.Unreachable, in.UID = m.View().Epoch() < cell.floor, cell.unreachable, ownUID
			w.note("confirm epoch %d with %s: %s", m.View().Epoch(), m.View().Name(action.Cell), confirmation(in))
		case Wait:
			w.elapse(action.For)
			in.View = w.view
			w.note("wait %s", action.For)
		case AwaitView:
			in.View = w.awaitView(m.View(), action.Deadline)
		default:
			w.note("%s", w.verdict(m.View(), action))
			return action, read, result
		}
		w.elapse(0)
		action = m.Step(w.now, in)
	}
}

func confirmation(in Input) string {
	switch {
	case in.Unreachable:
		return "no answer"
	case in.Stale:
		return "refused"
	default:
		return "accepted"
	}
}

func (w *world) lookAll(view *View, cells []slots.Index) (found []Sighting, unreachable bool) {
	var notes []string
	if w.newFirst != nil && w.newFirst() {
		cells = slices.Clone(cells)
		slices.Reverse(cells)
	}
	for _, i := range cells {
		if w.slow != nil {
			w.elapse(w.slow())
		}
		cell := w.cells[view.Name(i)]
		if cell.unreachable {
			unreachable = true
			notes = append(notes, view.Name(i)+" unreachable")
			continue
		}
		note := view.Name(i) + " " + cell.State.String()
		if cell.UID == ownUID {
			note += " (own)"
		}
		notes = append(notes, note)
		sighting := cell.Sighting
		sighting.Cell = i
		found = append(found, sighting)
	}
	what := "all cells"
	if len(cells) < len(view.Cells()) {
		what = "some cells"
	}
	w.note("look in %s: %s", what, strings.Join(notes, ", "))
	return found, unreachable
}

func (w *world) write(view *View, request Request, upsert bool, action Action) Result {
	cell := w.cells[view.Name(action.Cell)]
	result := cell.write(request, upsert, action.Write)
	w.written = cell.State
	if len(cell.answers) > 0 {
		result = cell.answers[0].result
		w.elapse(cell.answers[0].after)
		cell.answers = cell.answers[1:]
	}
	options := fmt.Sprintf("epoch %d", action.Write.Epoch)
	if action.Write.Existing {
		options += ", existing only"
	}
	if action.Write.Pinned != "" {
		options += ", pinned to " + action.Write.Pinned
	}
	w.note("send to %s (%s): %s", view.Name(action.Cell), options, result)
	return result
}

// write does what an API server behind the fence does. It cannot refuse a blind write to a frozen object.
func (c *simulatedCell) write(request Request, upsert bool, write Write) Result {
	exists := c.State != Absent
	switch {
	case write.Epoch < c.floor:
		return StaleEpoch
	case request.Op == Attach:
		return Done
	case request.Op == Create && exists:
		return Conflict
	case request.Op == Create:
		return Created
	case !exists && !upsert:
		return NotFound
	case !exists && write.Existing:
		return ObjectAbsent
	case !exists:
		return Created
	case !request.Blind && c.State != Live:
		return ObjectFrozen
	case write.Pinned != "" && write.Pinned != c.Version:
		return Conflict
	default:
		return Done
	}
}

// awaitView lets time pass until a view replaces the present one.
func (w *world) awaitView(present *View, deadline time.Time) *View {
	for !w.view.Replaces(present) && len(w.events) > 0 && !w.start.Add(w.events[0].at).After(deadline) {
		w.elapse(w.start.Add(w.events[0].at).Sub(w.now))
	}
	if !w.view.Replaces(present) {
		w.elapse(deadline.Sub(w.now))
		w.note("await a view: none within %s", w.now.Sub(w.start))
		return nil
	}
	w.note("await a view: epoch %d", w.view.Epoch())
	return w.view
}

func (w *world) verdict(view *View, action Action) string {
	switch action.Kind {
	case Serve:
		return "=> serve the answer"
	case Forward:
		return "=> forward to " + view.Name(action.Cell)
	case Refuse:
		return "=> refuse: " + [...]string{"held too long (429)", "already exists (409)", "not found (404)", "unknown outcome (504)"}[action.Reason]
	default:
		return "=> fail with the error of a cell"
	}
}
