package watchmerge

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/splice"
)

// afterAnnotation is the annotation in which the test's mover records a dependency, as `cell:version`.
const afterAnnotation = "test/after"

// object is a version of an object in a cell.
type object struct {
	key         string
	incarnation int // changes when a user recreates it
	content     int // grows with every change by a user
	status      string
	after       string
}

// entry is a change in a cell.
type entry struct {
	time int // in the order of all changes of all cells
	cell int
	rv   uint64
	kind splice.EventType
	object
}

// world is a history of cells, objects and moves.
type world struct {
	now     int
	logs    [][]entry
	rvs     []uint64
	objects map[string]*truth
	dead    map[int]bool // incarnations that users deleted
	died    map[int]int  // when
	born    map[int]int  // when incarnations were created
	last    int          // the last incarnation
	hints   bool         // dependencies are recorded
	moving  bool
	cleaned int // when the cleanup began
}

// truth is the true state of a key.
type truth struct {
	from, to int // the cells between which its slot moves; the same if it stays
	stage    stage
	alive    bool
	current  object
}

type stage int

const (
	atOld stage = iota
	frozen
	copied
	committed
	activated
)

func newWorld(cells int, hints bool) *world {
	w := &world{logs: make([][]entry, cells), rvs: make([]uint64, cells), objects: map[string]*truth{}, dead: map[int]bool{}, died: map[int]int{}, born: map[int]int{}, hints: hints}
	for i := range w.rvs {
		w.rvs[i] = 10
	}
	return w
}

// write changes an object in a cell and returns its new resourceVersion. Versions may be skipped, as by other resources.
func (w *world) write(t *rapid.T, cell int, kind splice.EventType, o object) uint64 {
	w.now++
	w.rvs[cell] += rapid.Uint64Range(1, 3).Draw(t, "rv")
	w.logs[cell] = append(w.logs[cell], entry{time: w.now, cell: cell, rv: w.rvs[cell], kind: kind, object: o})
	return w.rvs[cell]
}

func (w *world) dependency(cell int, rv uint64) string {
	if !w.hints {
		return ""
	}
	return fmt.Sprintf("%d:%d", cell, rv)
}

// step performs an action of a user or the mover on an object.
func (w *world) step(t *rapid.T, key string) {
	w.act(t, key, rapid.SampledFrom([]string{"update", "update", "delete", "move", "move"}).Draw(t, "what"))
}

// act performs an action on an object, or another one that is possible.
func (w *world) act(t *rapid.T, key, what string) {
	o := w.objects[key]
	owner := o.from
	if o.stage == activated {
		owner = o.to
	}
	switch {
	case !o.alive:
		if o.from != o.to {
			o.stage, owner = activated, o.to // absent names are created in the new cell
		}
		w.last++
		w.born[w.last] = w.now + 1
		o.alive, o.current = true, object{key: key, incarnation: w.last} // no dependency is recorded
		w.write(t, owner, splice.Added, o.current)
	case what == "move" && o.from != o.to && o.stage < activated:
		w.move(t, o)
	case o.stage == frozen || o.stage == copied || o.stage == committed:
		// Users' writes wait.
	case what == "delete":
		w.dead[o.current.incarnation] = true
		o.alive = false
		w.write(t, owner, splice.Deleted, o.current)
		w.died[o.current.incarnation] = w.now
	default:
		o.current.content++
		w.write(t, owner, splice.Modified, o.current)
	}
}

// move takes the next step of a move.
func (w *world) move(t *rapid.T, o *truth) {
	switch o.stage {
	case atOld:
		o.current.status = Migrating
		w.write(t, o.from, splice.Modified, o.current)
	case frozen:
		rv := w.write(t, o.to, splice.Added, o.current)
		o.current.after = w.dependency(o.to, rv)
	case copied:
		left := o.current
		left.status = Migrated
		rv := w.write(t, o.from, splice.Modified, left)
		o.current.after = w.dependency(o.from, rv)
	case committed:
		o.current.status = ""
		w.write(t, o.to, splice.Modified, o.current)
	}
	o.stage++
}

// cleanUp deletes what moves left behind.
func (w *world) cleanUp(t *rapid.T) {
	w.cleaned = w.now
	for i := range w.logs {
		state := w.state(i, w.now)
		for _, key := range slices.Sorted(maps.Keys(state)) {
			if o := state[key].object; o.status == Migrated {
				w.write(t, i, splice.Deleted, o)
			}
		}
	}
}

// replaced reports whether the new cell has another object of the name when a cell's event is read. A reader that resumes a watch checks
// that for past events of the old cell.
func (w *world) replaced(cell int, e entry) bool {
	o := w.objects[e.key]
	return cell == o.from && o.from != o.to && o.stage == activated && o.alive && o.current.incarnation != e.incarnation
}

// replacedBy reports whether the new cell has another object of the name at a time.
func (w *world) replacedBy(time, cell int, e entry) bool {
	o := w.objects[e.key]
	if cell != o.from || o.from == o.to || e.status != "" {
		return false
	}
	now, there := w.state(o.to, time)[e.key]
	return there && now.status == "" && now.incarnation != e.incarnation
}

// forgotten reports whether an incarnation may be shown to a resumed watch after a later one: nothing of the name is left by which the reader of the
// old cell could know that the later one was there.
func (w *world) forgotten(key string, incarnation int) bool {
	o := w.objects[key]
	return o.from != o.to && o.stage == activated && !o.alive && o.current.incarnation != incarnation
}

// state returns a cell's objects at a time.
func (w *world) state(cell, time int) map[string]entry {
	objects := map[string]entry{}
	for _, e := range w.logs[cell] {
		switch {
		case e.time > time:
		case e.kind == splice.Deleted:
			delete(objects, e.key)
		default:
			objects[e.key] = e
		}
	}
	return objects
}

// snapshot returns the initial events of a cell at a time, with the bookmark that ends them.
func (w *world) snapshot(t testing.TB, cell, time int) []*splice.Event {
	state := w.state(cell, time)
	var events []*splice.Event
	for _, key := range slices.Sorted(maps.Keys(state)) {
		e := state[key]
		e.kind = splice.Added
		events = append(events, event(t, e))
	}
	return append(events, bookmark(t, w.version(cell, time), true))
}

// version returns a cell's resourceVersion at a time.
func (w *world) version(cell, time int) uint64 {
	version := uint64(10)
	for _, e := range w.logs[cell] {
		if e.time <= time {
			version = e.rv
		}
	}
	return version
}

// Side implements Moves.
func (w *world) Side(cell int, o *splice.Object) Side {
	truth := w.objects[o.Key()]
	switch {
	case truth.from == truth.to:
		return Stays
	case cell == truth.from:
		return Leaves
	default:
		return Arrives
	}
}

// After implements Moves.
func (w *world) After(_ int, e *splice.Event) Dependency {
	cell, version, found := strings.Cut(e.Object.Annotation(afterAnnotation), ":")
	if !found {
		return Dependency{}
	}
	i, _ := strconv.Atoi(cell)
	v, _ := strconv.ParseUint(version, 10, 64)
	return Dependency{Cell: i, Version: v}
}

func event(t testing.TB, e entry) *splice.Event {
	t.Helper()
	raw := fmt.Sprintf(`{"type":%q,"object":{"kind":"X","apiVersion":"x/v1","metadata":{"name":%q,"namespace":"n","uid":"%d","resourceVersion":"%d","labels":{%q:%q},"annotations":{%q:%q,"content":"%d","change":"%d/%d"}}}}`,
		e.kind, e.key[2:], e.incarnation, e.rv, StatusLabel, e.status, afterAnnotation, e.after, e.content, e.cell, e.rv)
	parsed, err := splice.ParseEvent([]byte(raw), splice.JSON)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func bookmark(t testing.TB, version uint64, end bool) *splice.Event {
	t.Helper()
	annotations := ""
	if end {
		annotations = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	parsed, err := splice.ParseEvent([]byte(fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"X","metadata":{"resourceVersion":"%d"%s}}}`, version, annotations)), splice.JSON)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
