package handover

// Status is what a cell holds of an object.
type Status int

const (
	// Absent means that the cell has no such object.
	Absent Status = iota
	// Active objects are in use.
	Active
	// Frozen objects can be read; only the mover may change them.
	Frozen
	// Moved objects belong to another cell and wait to be removed.
	Moved
)

// String returns the status in a word.
func (s Status) String() string {
	return [...]string{"absent", "active", "frozen", "moved"}[s]
}

// Step is something that the mover does. The steps are declared in the order in which they occur.
type Step int

const (
	// Done means that nothing remains to be done.
	Done Step = iota
	// List finds the objects of the slot in the cells that they leave, not older than what the mover knows of them.
	List
	// Load reads what both cells hold of an object.
	Load
	// Freeze marks the old object, so that the old cell refuses all writes to it.
	Freeze
	// Copy stores the frozen object in the new cell, still frozen, over whatever is there.
	Copy
	// Verify reads the copy through the new cell's API server.
	Verify
	// MarkWork marks a Work as moved, so that the old cell's engine writes nothing to members because of it.
	MarkWork
	// Commit marks the old object as moved. From then on the object belongs to the new cell.
	Commit
	// Discard marks the old object as moved because the new cell has its own. Clients have only seen the new one.
	Discard
	// Activate removes the mark from the new object.
	Activate
)

// String returns the step in a word.
func (s Step) String() string {
	return [...]string{"done", "list", "load", "freeze", "copy", "verify", "mark", "commit", "discard", "activate"}[s]
}

// State is what the old and the new cell hold of an object.
type State struct {
	Old, New Status
	// Equal means that both hold the same bytes.
	Equal bool
	// Verified means that the new cell's API server was seen to serve the copy.
	Verified bool
}

// Next returns the next step of an object. It depends on the state alone, not on how the state was reached, and is
// defined for every state, including those that should not occur.
//
// Two frozen objects are the same object: one was copied from the other, and nothing else can change either. So it
// does not matter which one was the original, and a change that is reversed continues in the other direction.
func (s State) Next() Step {
	switch s.Old {
	case Active:
		if s.New == Active {
			return Discard
		}
		return Freeze
	case Frozen:
		switch {
		case s.New == Active:
			return Discard
		case s.New != Frozen || !s.Equal:
			return Copy
		case !s.Verified:
			return Verify
		default:
			return Commit
		}
	default: // it belongs to the new cell, or exists nowhere
		if s.New == Frozen {
			return Activate
		}
		return Done
	}
}

// Result returns the status of what a step has stored.
func (s Step) Result() Status {
	switch s {
	case Freeze, Copy:
		return Frozen
	case MarkWork, Commit, Discard:
		return Moved
	default:
		return Active
	}
}

// SharesRevision reports whether a step may be taken for several objects in one transaction, and so at one revision.
// An API server may serve a list, or resume a watch, between two changes of one revision; the second is then seen
// late or never.
//
// Freeze and Commit may be missed: neither is shown to clients, and engines leave an object alone after either. A
// copy is looked up at the revision that the commit names, and an activated object is shown to clients, so these need
// a revision of their own.
func (s Step) SharesRevision() bool { return s == Freeze || s == Commit }
