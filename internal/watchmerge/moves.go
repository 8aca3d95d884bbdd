package watchmerge

import (
	"cmp"
	"slices"

	"github.com/cellplane/cellplane/internal/splice"
)

// StatusLabel is the label in which an object tells how far its move between cells is.
const StatusLabel = "cellplane.io/rebalance-status"

// The values of StatusLabel.
const (
	// Migrating is the status of an object frozen for its move, and of its copy until that is activated.
	Migrating = "migrating"
	// Migrated is the status of what is left in the old cell.
	Migrated = "migrated"
)

// Side is the part a cell has in an object's move.
type Side int

// The sides of a move.
const (
	// Stays: the object's slot does not move.
	Stays Side = iota
	// Leaves: the object's slot moves from this cell to another.
	Leaves
	// Arrives: the object's slot moves to this cell from another.
	Arrives
)

// Dependency says that an event must not go out before a cell has reached a resourceVersion. Version 0 is no dependency.
type Dependency struct {
	Cell    int
	Version uint64
}

// Moves tells about objects on their way between cells.
type Moves interface {
	// Side returns the part of a cell in the move of an object.
	Side(cell int, object *splice.Object) Side
	// After returns what an event depends on: for an object that is Migrated, the arrival of its copy in the new cell; for one that
	// has arrived and has no status, the commit in the old cell; for one created in the new cell, any version of the old cell at
	// which it was absent for good. Where the dependency is not known, an event of the new cell hides all of the old cell's that
	// come after it in the same watch, but not in one that resumes there.
	After(cell int, event *splice.Event) Dependency
}

// moveState is what a Merger remembers of moving objects. All of it is about objects whose slots move, and most is forgotten after
// the initial events.
type moveState struct {
	moves Moves
	// overtaken are the keys of objects shown from the new cell while the old cell may still send older events of them.
	overtaken map[string]struct{}

	// arrived are the keys shown from new cells, migrated those not shown from old ones.
	arrived, migrated map[string]struct{}
	// copies are the copies not activated yet, by key. Only as many objects are moved at once as the mover's window allows.
	copies map[string]*splice.Event
	// required is how far each cell has to be read before the initial events are complete.
	required []uint64
}

func (s *moveState) begin(options Options) {
	s.moves = options.Moves
	s.overtaken = map[string]struct{}{}
	if options.Start == nil {
		s.arrived, s.migrated, s.copies = map[string]struct{}{}, map[string]struct{}{}, map[string]*splice.Event{}
		s.required = make([]uint64, options.Cells)
	}
}

func (s *moveState) side(i int, event *splice.Event) Side {
	if s.moves == nil {
		return Stays
	}
	return s.moves.Side(i, &event.Object)
}

// after returns what a live event has to wait for. What is not shown waits for nothing.
func (s *moveState) after(i int, event *splice.Event) Dependency {
	if s.moves == nil || event.Object.Label(StatusLabel) != "" {
		return Dependency{}
	}
	return s.moves.After(i, event)
}

// shows reports whether a live event is for the client.
func (s *moveState) shows(i int, event *splice.Event) bool {
	status := event.Object.Label(StatusLabel)
	if status == Migrated {
		return false // also long after the change, when nobody knows of the move any more
	}
	switch s.side(i, event) {
	case Leaves:
		_, overtaken := s.overtaken[event.Object.Key()]
		return !overtaken
	case Arrives:
		if status != "" {
			return false
		}
		s.overtake(i, event)
	}
	return true
}

// overtake notes that events of the old cell are out of date, if it is not certain that they all have been seen.
func (s *moveState) overtake(i int, event *splice.Event) {
	if s.moves.After(i, event).Version != 0 {
		return
	}
	s.overtaken[event.Object.Key()] = struct{}{}
}

// showsInitially reports whether an event is for the client before there are positions. The cells' initial events are in no order to
// each other, so what depends on another cell is noted, and seen to at the end.
func (s *moveState) showsInitially(i int, event *splice.Event) bool {
	key, status := event.Object.Key(), event.Object.Label(StatusLabel)
	if status == Migrated {
		s.migrated[key] = struct{}{}
		s.require(i, event)
		return false
	}
	switch s.side(i, event) {
	case Leaves:
		_, arrived := s.arrived[key]
		return !arrived
	case Arrives:
		delete(s.copies, key)
		if status == "" {
			s.arrived[key] = struct{}{}
			s.overtake(i, event)
			s.require(i, event)
			return true
		}
		if event.Type != splice.Deleted {
			s.copies[key] = event
		}
		return false
	}
	return true
}

func (s *moveState) require(i int, event *splice.Event) {
	if s.moves == nil {
		return
	}
	after := s.moves.After(i, event)
	if after.Cell >= 0 && after.Cell < len(s.required) {
		s.required[after.Cell] = max(s.required[after.Cell], after.Version)
	}
}

// lags reports whether a cell at a version has to go on for the initial events to be complete.
func (s *moveState) lags(i int, version uint64) bool { return version < s.required[i] }

// endInitial returns the copies that have to be shown although they are not activated: the old cell has let go of them.
func (s *moveState) endInitial() []*splice.Event {
	var shown []*splice.Event
	for key, event := range s.copies {
		if _, migrated := s.migrated[key]; migrated {
			shown = append(shown, event)
		}
	}
	slices.SortFunc(shown, func(a, b *splice.Event) int { return cmp.Compare(a.Object.Key(), b.Object.Key()) })
	s.arrived, s.migrated, s.copies = nil, nil, nil
	return shown
}
