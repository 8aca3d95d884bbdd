package watchmerge

import (
	"cmp"
	"slices"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/splice"
)

// StatusLabel is the label with the state of an object's move between cells.
const StatusLabel = names.RebalanceStatusLabel

// The values of StatusLabel.
const (
	// Migrating is the status of an object frozen for its move, and of its copy until that is activated.
	Migrating = names.RebalanceMigrating
	// Migrated is the status of what is left in the old cell.
	Migrated = names.RebalanceMigrated
)

// Side is the role of a cell in an object's move.
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

// Moves describes how objects move between cells.
type Moves interface {
	// Side returns the role of a cell in the move of an object.
	Side(cell int, object *splice.Object) Side
	// After returns what an event depends on: for a Migrated object the copy in the new cell, for an object without a label in the new
	// cell the commit in the old cell. An object created in the new cell has no recorded dependency: within a watch it hides later events
	// of the old cell about another object of its name. For a watch that resumes, the reader of the old cell has to drop such events. It cannot know
	// of an object that is gone again by then.
	After(cell int, event *splice.Event) Dependency
}

// sent is an event that a cell has sent.
type sent struct {
	cell  int
	event *splice.Event
}

// moveState is what a Merger remembers of objects whose slots move. Most of it is dropped after the initial events.
type moveState struct {
	moves Moves
	// overtaken holds, by key, the UIDs of objects created in the new cell while the old cell may still send events of another one; "" if
	// all further events of the old cell are older.
	overtaken map[string]string

	// arrived are the keys shown from new cells, kept those that old cells still have.
	arrived, kept map[string]struct{}
	// copies are the copies not activated yet, by key. The mover's window limits their number.
	copies map[string]sent
	// required is how far each cell has to be read before the initial events are complete.
	required []uint64
}

func (s *moveState) begin(options Options) {
	s.moves = options.Moves
	s.overtaken = map[string]string{}
	if options.Start == nil {
		s.arrived, s.kept, s.copies = map[string]struct{}{}, map[string]struct{}{}, map[string]sent{}
		s.required = make([]uint64, options.Cells)
	}
}

func (s *moveState) side(i int, event *splice.Event) Side {
	if s.moves == nil {
		return Stays
	}
	return s.moves.Side(i, &event.Object)
}

// after returns what a live event has to wait for. An event that is not shown waits for nothing.
func (s *moveState) after(i int, event *splice.Event) Dependency {
	if s.moves == nil || event.Object.Label(StatusLabel) != "" {
		return Dependency{}
	}
	return s.moves.After(i, event)
}

// shows reports whether a live event is for the client. A labelled object has nothing new: only the mover writes it, and it changes only
// the label. That also holds long after the change of the topology.
func (s *moveState) shows(i int, event *splice.Event) bool {
	if event.Object.Label(StatusLabel) != "" {
		return false
	}
	switch s.side(i, event) {
	case Leaves:
		return !s.outdated(i, &event.Object)
	case Arrives:
		if event.Type == splice.Added {
			s.overtake(i, event, event.Object.UID)
		}
	}
	return true
}

// outdated reports whether an object of a cell is another one than that of its name which was created in the new cell.
func (s *moveState) outdated(i int, object *splice.Object) bool {
	uid, overtaken := s.overtaken[object.Key()]
	return overtaken && uid != object.UID && s.moves.Side(i, object) == Leaves
}

// overtake notes that events of the old cell about any object of the name but one are outdated.
func (s *moveState) overtake(i int, event *splice.Event, uid string) {
	if s.moves.After(i, event).Version == 0 {
		s.overtaken[event.Object.Key()] = uid
	}
}

// showsInitially reports whether an initial event is for the client. Initial events of different cells have no order, so dependencies are
// collected here and met at the end.
func (s *moveState) showsInitially(i int, event *splice.Event) bool {
	key, status := event.Object.Key(), event.Object.Label(StatusLabel)
	if status != "" && event.Type == splice.Deleted {
		delete(s.copies, key)
		return false // the mover deleted it
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
			s.copies[key] = sent{i, event}
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

// lags reports whether a cell at a version has to be read further before the initial events are complete.
func (s *moveState) lags(i int, version uint64) bool { return version < s.required[i] }

// endInitial returns the copies that have to be shown although they are not activated: the old cell has released the object, or never had
// it, because the copy was promoted from a backup.
func (s *moveState) endInitial() []sent {
	var shown []sent
	for key, copied := range s.copies {
		if _, kept := s.kept[key]; !kept {
			shown = append(shown, copied)
		}
	}
	slices.SortFunc(shown, func(a, b sent) int { return cmp.Compare(a.event.Object.Key(), b.event.Object.Key()) })
	s.arrived, s.kept, s.copies = nil, nil, nil
	return shown
}
