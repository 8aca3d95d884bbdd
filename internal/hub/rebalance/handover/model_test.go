package handover

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// world models two cells, one slot, its clients, the engine of the old cell, and movers. It checks after every event
// that nothing is lost, that no object has two owners, and that no engine sees an object without the objects it
// depends on.
type world struct {
	cells [2]map[string]*held
	old   int // the cell that the slot leaves
	// acked is the last version that was acknowledged to a client, by key. A deleted object has none.
	acked map[string]int
	// late are bindings that the engine has stored after it should have seen that their template is frozen.
	late map[string]bool
	// unseen are deletions in the old cell that its index has not seen. The next List still finds the objects.
	unseen map[string]bool
	// activated are the objects that movers of this change have activated, and that were not replaced since.
	activated map[string]bool
	version   int

	// The mover. Its actions are answered in any order.
	order  *Slot
	known  map[Object]*view
	flight []Action
	log    []string
}

// held is what a cell holds under a key.
type held struct {
	status  Status
	version int
	// revision changes with every write.
	revision int
}

// view is what the mover knows of an object.
type view struct {
	old, new held
	verified bool
}

func newWorld() *world {
	w := &world{cells: [2]map[string]*held{{}, {}}, acked: map[string]int{}, late: map[string]bool{}, unseen: map[string]bool{}, activated: map[string]bool{}}
	w.crash()
	return w
}

func cellName(cell int) string { return [...]string{"a", "b"}[cell] }

func (w *world) at(cell int, key string) *held {
	if w.cells[cell][key] == nil {
		w.cells[cell][key] = &held{}
	}
	return w.cells[cell][key]
}

// store writes what a cell holds. Every write has a new revision.
func (w *world) store(cell int, key string, status Status, version int) {
	w.version++
	*w.at(cell, key) = held{status: status, version: version, revision: w.version}
}

func (w *world) keys() []string {
	keys := map[string]struct{}{}
	for _, cell := range w.cells {
		for key := range cell {
			keys[key] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// located returns the cell in which gateways find an object, or -1: they look in the new cell first.
func (w *world) located(key string) int {
	switch old, other := w.at(w.old, key).status, w.at(1-w.old, key).status; {
	case other == Active:
		return 1 - w.old
	case old == Active || old == Frozen:
		return w.old
	case other == Frozen:
		return 1 - w.old
	default:
		return -1
	}
}

// Clients and engines.

// create stores an object where gateways put it: in the new cell, unless there is one.
func (w *world) create(key string) {
	if w.located(key) < 0 {
		w.version++
		w.acked[key] = w.version
		w.store(1-w.old, key, Active, w.version)
	}
}

// exist stores an object in the old cell before the change begins.
func (w *world) exist(key string) {
	w.version++
	if KindOf(key) != Work {
		w.acked[key] = w.version
	}
	w.store(w.old, key, Active, w.version)
}

// write changes an object. The fence refuses that while it is frozen.
func (w *world) write(key string) bool {
	at := w.located(key)
	if at < 0 || w.at(at, key).status != Active {
		return false
	}
	w.version++
	w.acked[key] = w.version
	w.store(at, key, Active, w.version)
	return true
}

// scale changes an object, frozen or not, at the old cell's API server: the fence does not see the label in a Scale.
// Gateways prevent that by a precondition, so that only somebody who bypasses them can do it.
func (w *world) scale(key string) bool {
	at := w.located(key)
	if at != w.old || KindOf(key) != Template {
		return false
	}
	w.version++
	w.acked[key] = w.version
	w.store(at, key, w.at(at, key).status, w.version)
	return true
}

func (w *world) remove(key string) bool {
	at := w.located(key)
	if at < 0 || w.at(at, key).status != Active {
		return false
	}
	delete(w.acked, key)
	delete(w.activated, key)
	w.store(at, key, Absent, 0)
	w.at(at, key).revision = 0
	w.unseen[key] = at == w.old
	return true
}

// bind has the old cell's engine store a binding of a template that is in use there. An engine that has not seen the
// freeze yet may do so late.
func (w *world) bind(key string, late bool) bool {
	binding := bindingOf(key)
	template := w.at(w.old, key).status
	if template != Active && (!late || template == Absent) || w.at(w.old, binding).status != Absent || w.located(binding) >= 0 {
		return false
	}
	w.version++
	w.acked[binding] = w.version
	w.late[binding] = template != Active
	w.store(w.old, binding, Active, w.version)
	return true
}

func bindingOf(template string) string {
	return bindingsPrefix + strings.TrimPrefix(template, "deployments/")
}
func templateOf(binding string) string {
	return "deployments/" + strings.TrimPrefix(binding, bindingsPrefix)
}

// outdatedCopy reports whether an object was scaled after it was copied. If the change is reversed just then, the
// scale is lost.
func (w *world) outdatedCopy() bool {
	return slices.ContainsFunc(w.keys(), func(key string) bool {
		old, other := w.at(w.old, key), w.at(1-w.old, key)
		return old.status == Frozen && other.status == Frozen && old.version != other.version
	})
}

// reverse turns the change back. Objects that have moved away from what is now the new cell are removed first, as in
// phase Fencing, and the former mover is stopped.
func (w *world) reverse() {
	w.old = 1 - w.old
	clear(w.activated)
	clear(w.unseen)
	for _, key := range w.keys() {
		if other := w.at(1-w.old, key); other.status == Moved {
			*other = held{}
		}
	}
	w.crash()
}

// The mover.

// crash replaces the mover by another one. What the former one had under way is not done: its term is refused.
func (w *world) crash() {
	w.order, w.known, w.flight = NewSlot(cellName(w.old)), map[Object]*view{}, nil
}

// restart has the mover begin again after a failure. What it had under way is not done, or its answer was lost.
func (w *world) restart() {
	w.order.Restart()
	w.flight = nil
}

// ready adds the actions that are ready to those under way.
func (w *world) ready() []Action {
	w.flight = append(w.flight, w.order.Ready()...)
	return w.flight
}

// perform does one of the actions under way and applies its result, unless the answer is lost.
func (w *world) perform(i int, lost bool) {
	action := w.flight[i]
	w.flight = slices.Delete(w.flight, i, i+1)
	result := w.do(action)
	text := action.Step.String()
	if action.Object.Key != "" {
		text += " " + name(action.Object.Key)
	}
	switch {
	case lost:
		text += ": answer lost"
	case result.Conflict:
		text += ": conflict"
	}
	w.log = append(w.log, text)
	if lost {
		w.restart()
		return
	}
	w.order.Apply(result)
}

// do carries an action out as rebalance.Mover does: it compares revisions, and writes only what it knows.
func (w *world) do(action Action) Result {
	r := Result{Action: action}
	key := action.Object.Key
	v := w.known[action.Object]
	if v == nil {
		v = &view{}
		w.known[action.Object] = v
	}
	old, other := w.at(w.old, key), w.at(1-w.old, key)
	switch action.Step {
	case List:
		delete(w.cells[w.old], "")
		delete(w.cells[1-w.old], "")
		r.Found = w.list()
		clear(w.unseen)
		return r
	case MarkWork:
		if old.status == Active {
			w.store(w.old, key, Moved, old.version)
		}
		return r
	case Load:
		*v = view{old: *old, new: *other}
	case Freeze, Commit, Discard:
		if r.Conflict = old.revision != v.old.revision; !r.Conflict {
			w.store(w.old, key, action.Step.Result(), v.old.version)
			v.old = *old
		}
	case Copy:
		v.verified = false
		if r.Conflict = other.revision != v.new.revision; !r.Conflict {
			w.store(1-w.old, key, Frozen, v.old.version)
			v.new = *other
		}
	case Verify:
		v.verified = true
	case Activate:
		if r.Conflict = other.revision != v.new.revision; !r.Conflict {
			w.store(1-w.old, key, Active, v.new.version)
			w.activated[key] = true
			v.new = *other
		}
	}
	r.State = State{Old: v.old.status, New: v.new.status, Equal: v.old.status == v.new.status && v.old.version == v.new.version, Verified: v.verified}
	return r
}

// list returns what the index of the old cell knows to remain, and copies that a former mover has left frozen.
func (w *world) list() []Object {
	var found []Object
	for _, key := range w.keys() {
		old, other := w.at(w.old, key).status, w.at(1-w.old, key).status
		if old == Active || old == Frozen || other == Frozen || w.unseen[key] {
			found = append(found, Object{cellName(w.old), key})
		}
	}
	return found
}

// finished reports whether the mover has nothing more to do, and the store nothing more to move.
func (w *world) finished() bool {
	if len(w.ready()) > 0 {
		return false
	}
	if len(w.list()) > 0 { // something was stored meanwhile, and the slot is moved again
		w.crash()
		w.ready()
		return false
	}
	return true
}

// check returns what is wrong.
func (w *world) check() error {
	committed := false
	for _, key := range w.keys() {
		if KindOf(key) == Work {
			continue
		}
		if w.at(0, key).status == Active && w.at(1, key).status == Active {
			return fmt.Errorf("%s: both cells accept writes", name(key))
		}
		at := w.located(key)
		if at < 0 && w.acked[key] != 0 {
			return fmt.Errorf("%s: version %d is lost", name(key), w.acked[key])
		}
		if at >= 0 && w.at(at, key).version != w.acked[key] {
			return fmt.Errorf("%s: clients read version %d, but %d was acknowledged", name(key), w.at(at, key).version, w.acked[key])
		}
		committed = committed || w.at(w.old, key).status == Moved
		if err := w.checkDependents(key); err != nil {
			return err
		}
	}
	for _, key := range w.keys() {
		if KindOf(key) == Work && committed && w.at(w.old, key).status == Active {
			return fmt.Errorf("%s: the old cell's engine still writes to members, and objects belong to the new cell", name(key))
		}
	}
	return nil
}

// checkDependents returns an error if the new cell's engine sees a binding without its template, or a template
// without its binding.
func (w *world) checkDependents(key string) error {
	if !w.activated[key] {
		return nil
	}
	switch KindOf(key) {
	case Binding:
		template := templateOf(key)
		if w.located(template) == w.old && w.at(1-w.old, template).status != Frozen {
			return fmt.Errorf("%s: in use in the new cell without its template", name(key))
		}
	case Template:
		binding := bindingOf(key)
		if w.located(binding) >= 0 && w.at(1-w.old, binding).status != Active && !w.late[binding] {
			return fmt.Errorf("%s: in use in the new cell without its binding", name(key))
		}
	case Work:
	}
	return nil
}

// name shortens a key: deployments/web is web, its binding is web*, and Works are web@member.
func name(key string) string {
	switch KindOf(key) {
	case Binding:
		return strings.TrimPrefix(key, bindingsPrefix) + "*"
	case Work:
		return strings.TrimPrefix(key, worksPrefix)
	default:
		return strings.TrimPrefix(key, "deployments/")
	}
}

// keyOf is the inverse of name.
func keyOf(name string) string {
	switch {
	case strings.HasSuffix(name, "*"):
		return bindingsPrefix + strings.TrimSuffix(name, "*")
	case strings.Contains(name, "@"):
		return worksPrefix + name
	default:
		return "deployments/" + name
	}
}

// String lists what the cells hold.
func (w *world) String() string {
	var b strings.Builder
	for _, key := range w.keys() {
		if a, other := w.at(0, key).status, w.at(1, key).status; a != Absent || other != Absent {
			fmt.Fprintf(&b, "%s: a %v, b %v\n", name(key), a, other)
		}
	}
	return b.String()
}
