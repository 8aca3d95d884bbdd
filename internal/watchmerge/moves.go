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
	// has arrived and has no status, the commit in the old cell. An object created in the new cell depends on nothing that anybody
	// has written down: it hides what the old cell still has to tell about another one of its name, in the same watch. A watch that
	// resumes has to be spared such events by whoever reads the old cell.
	After(cell int, event *splice.Event) Dependency
}

// moveState is what a Merger remembers of moving objects. All of it is about objects whose slots move, and most is forgotten after
// the initial events.
type moveState struct {
	moves Moves
	// overtaken are the UIDs, by key, of objects made in the new cell while the old cell may still send events of another one; or "" if
	// whatever the old cell still sends is older.
	overtaken map[string]string

	// arrived are the keys shown from new cells, kept those that old ones still have.
	arrived, kept map[string]struct{}
	// copies are the copies not activated yet, by key. Only as many objects are moved at once as the mover's window allows.
	copies map[string]*splice.Event
	// required is how far each cell has to be read before the initial events are complete.
	required []uint64
}

func (s *moveState) begin(options Options) {
	s.moves = options.Moves
	s.overtaken = map[string]string{}
	if options.Start == nil {
		s.arrived, s.kept, s.copies = map[string]struct{}{}, map[string]struct{}{}, map[string]*splice.Event{}
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

// shows reports whether a live event is for the client. What has a status says nothing new: nobody but the mover writes such objects,
// and it changes nothing but the status. That also holds long after the change, when nobody knows of the move any more.
func (s *moveState) shows(i int, event *splice.Event) bool {
	if event.Object.Label(StatusLabel) != "" {
		return false
	}
	switch s.side(i, event) {
	case Leaves:
		uid, overtaken := s.overtaken[event.Object.Key()]
		return !overtaken || uid == event.Object.UID
	case Arrives:
		if event.Type == splice.Added {
			s.overtake(i, event, event.Object.UID)
		}
	}
	return true
}

// overtake notes that events of the old cell about any object of the name but one are out of date.
func (s *moveState) overtake(i int, event *splice.Event, uid string) {
	if s.moves.After(i, event).Version == 0 {
		s.overtaken[event.Object.Key()] = uid
	}
}

// showsInitially reports whether an event is for the client before there are positions. The cells' initial events are in no order to
// each other, so what depends on another cell is noted, and seen to at the end.
func (s *moveState) showsInitially(i int, event *splice.Event) bool {
	key, status := event.Object.Key(), event.Object.Label(StatusLabel)
	if status != "" && event.Type == splice.Deleted {
		delete(s.copies, key)
		return false // it was the mover's
	}
	if status == Migrated {
		delete(s.kept, key)
		s.require(i, event)
		return false
	}
	switch s.side(i, event) {
	case Leaves:
		if s.kept[key] = struct{}{}; event.Type == splice.Deleted {
			delete(s.kept, key)
		}
		_, arrived := s.arrived[key]
		return !arrived
	case Arrives:
		delete(s.copies, key)
		if status == "" {
			s.arrived[key] = struct{}{}
			s.overtake(i, event, "")
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

// endInitial returns the copies that have to be shown although they are not activated: the old cell has let go of them, or never had
// them, because they were promoted from a backup.
func (s *moveState) endInitial() []*splice.Event {
	var shown []*splice.Event
	for key, event := range s.copies {
		if _, kept := s.kept[key]; !kept {
			shown = append(shown, event)
		}
	}
	slices.SortFunc(shown, func(a, b *splice.Event) int { return cmp.Compare(a.Object.Key(), b.Object.Key()) })
	s.arrived, s.kept, s.copies = nil, nil, nil
	return shown
}
