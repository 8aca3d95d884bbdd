package handover

import (
	"slices"
	"strings"
)

// Kind is what an object is to its slot.
type Kind int

const (
	// Template objects, and everything else that clients store.
	Template Kind = iota
	// Binding objects say in which members a template runs. They depend on their template.
	Binding
	// Work objects are derived from bindings. They do not move: the new cell's engine makes its own.
	Work
)

const (
	bindingsPrefix = "work.karmada.io/resourcebindings/"
	worksPrefix    = "work.karmada.io/works/"
)

// KindOf returns the kind of the object with a key, without the prefix of the store.
func KindOf(key string) Kind {
	switch {
	case strings.HasPrefix(key, bindingsPrefix):
		return Binding
	case strings.HasPrefix(key, worksPrefix):
		return Work
	default:
		return Template
	}
}

// Object names an object to move: the cell that it leaves, and its key there without the prefix of the store.
type Object struct {
	Cell, Key string
}

// Action is a step to take with an object. List has none.
type Action struct {
	Step   Step
	Object Object
}

// Result is what came of an action.
type Result struct {
	Action
	// Found are the objects and Works that List found.
	Found []Object
	// State of the object after the action. List and MarkWork have none.
	State State
	// Conflict means that nothing was done because somebody else has changed the object.
	Conflict bool
}

// The stages of a slot, in order. All objects reach the end of a stage before any of them begins the next.
const (
	// collecting freezes, copies and verifies everything, including what appears meanwhile.
	collecting = iota
	// marking has the old cell's engine stop writing to members. The new cell's engine begins only after it.
	marking
	// committing gives all objects to the new cell. All copies exist.
	committing
	// activatingBindings comes first: an engine that saw a template without its binding would schedule it again.
	activatingBindings
	// activatingTemplates is last. Until then the templates are there, frozen: an engine that saw a binding without
	// its template would remove the workload from the members.
	activatingTemplates
	finished
)

// Slot orders the steps of the objects of one slot. The zero value is not usable; NewSlot returns one.
type Slot struct {
	owner   string
	objects []*entry
	byName  map[Object]*entry
	// listed means that the list of objects is complete: none was loaded or frozen since it was made. Before an
	// object is frozen the old cell's engine may still add to it.
	listed bool
	// listing means that a List is under way, and outdated that its result will not be complete.
	listing, outdated bool
}

// entry is what is known of an object.
type entry struct {
	Object
	next Step
	busy bool // an action is under way
}

// NewSlot returns the order for a slot that leaves a cell, its owner. Objects may be found in other cells too.
func NewSlot(owner string) *Slot {
	return &Slot{owner: owner, byName: map[Object]*entry{}}
}

// Ready returns the actions that may be taken now, in any order or at the same time. Each is returned once, and its
// result has to be given to Apply. When nothing is ready and nothing is under way, the slot has moved.
func (s *Slot) Ready() []Action {
	now := s.stage()
	if !s.listed && now.stage != collecting {
		if s.listing {
			return nil
		}
		s.listing, s.outdated = true, false
		return []Action{{Step: List}}
	}
	var ready []Action
	for _, e := range s.objects {
		if !e.busy && e.next != Done && s.stageOf(e) == now {
			e.busy = true
			ready = append(ready, Action{e.next, e.Object})
		}
	}
	return ready
}

// Apply takes the result of an action.
func (s *Slot) Apply(r Result) {
	if r.Step == List {
		s.listing, s.listed = false, !s.outdated
		for _, object := range r.Found {
			s.add(object)
		}
		return
	}
	e := s.byName[r.Object]
	e.busy = false
	switch {
	case r.Conflict:
		e.next = Load
	case r.Step == MarkWork:
		e.next = Done
	default:
		e.next = r.State.Next()
	}
	if r.Step == Load || r.Step == Freeze {
		s.listed, s.outdated = false, true
	}
}

// Restart forgets everything but which objects there are: actions have failed, and may have been done or not. No
// result of an action that was returned before may be applied after it.
func (s *Slot) Restart() {
	s.listed, s.listing = false, false
	for _, e := range s.objects {
		e.next, e.busy = first(e.Object), false
	}
}

// add adds an object that List has found. One that was done is looked at again: it was gone, and was created anew.
func (s *Slot) add(object Object) {
	e := s.byName[object]
	if e == nil {
		e = &entry{Object: object}
		s.objects, s.byName[object] = append(s.objects, e), e
	}
	if e.next == Done {
		e.next = first(object)
	}
}

// first returns the step that a newly found object begins with.
func first(object Object) Step {
	if KindOf(object.Key) == Work {
		return MarkWork
	}
	return Load
}

// progress is how far a slot, or an object, is.
type progress struct {
	// stray objects are in a cell that does not own the slot. They come last: the owner's object with the same key
	// must not be lost to one.
	stray bool
	stage int
}

func (p progress) before(other progress) bool {
	if p.stray != other.stray {
		return other.stray
	}
	return p.stage < other.stage
}

// stage returns the stage of the object that is furthest behind.
func (s *Slot) stage() progress {
	behind := progress{stray: true, stage: finished}
	for _, e := range s.objects {
		if p := s.stageOf(e); e.next != Done && p.before(behind) {
			behind = p
		}
	}
	return behind
}

func (s *Slot) stageOf(e *entry) progress {
	kind := KindOf(e.Key)
	p := progress{stray: e.Cell != s.owner && kind != Work}
	switch {
	case slices.Contains([]Step{Load, Freeze, Copy, Verify}, e.next):
		p.stage = collecting
	case e.next == MarkWork:
		p.stage = marking
	case e.next == Commit, e.next == Discard:
		p.stage = committing
	case e.next == Activate && kind == Binding:
		p.stage = activatingBindings
	case e.next == Activate:
		p.stage = activatingTemplates
	default:
		p.stage = finished
	}
	return p
}
