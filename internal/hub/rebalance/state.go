package rebalance

// Standing is what a cell holds of an object.
type Standing int

const (
	// Absent means that the cell has no such object.
	Absent Standing = iota
	// Active objects are in use.
	Active
	// Frozen objects can be read, and changed by nobody but the mover.
	Frozen
	// Left objects belong to another cell already and wait to be removed.
	Left
)

// String returns the standing in a word.
func (s Standing) String() string {
	return [...]string{"absent", "active", "frozen", "left"}[s]
}

// Situation is what the old and the new cell hold of an object.
type Situation struct {
	Old, New Standing
	// Equal tells that both hold the same, byte for byte.
	Equal bool
	// Verified tells that the new cell's API server has been seen to serve what the new cell holds.
	Verified bool
}

// Step is what the mover does next with an object.
type Step int

const (
	// Done means that there is nothing left to do.
	Done Step = iota
	// Freeze marks the old object, so that the old cell refuses all writes to it.
	Freeze
	// Copy stores the frozen object in the new cell, still frozen, over whatever is there.
	Copy
	// Verify reads the copy through the new cell's API server.
	Verify
	// Commit marks the old object as left. With it the object belongs to the new cell.
	Commit
	// Activate takes the mark off the new object.
	Activate
	// Discard marks the old object as left, because the new cell has one of its own. Clients have only seen the new one.
	Discard
)

// String returns the step in a word.
func (s Step) String() string {
	return [...]string{"done", "freeze", "copy", "verify", "commit", "activate", "discard"}[s]
}

// Next returns what to do with an object. It is the same whether the mover comes from the step before or from a crash, and holds for
// every combination, also those that should not occur.
//
// Two frozen objects are the same object: one was copied from the other, and neither can have been changed by anybody else. So it does
// not matter which one was the original, and a change that is turned back goes on from there in the other direction.
func (s Situation) Next() Step {
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
	default: // it belongs to the new cell, or to nobody
		if s.New == Frozen {
			return Activate
		}
		return Done
	}
}

// leaves returns how what a step has stored stands.
func (s Step) leaves() Standing {
	switch s {
	case Freeze, Copy:
		return Frozen
	case Commit, Discard:
		return Left
	default:
		return Active
	}
}

// beforeCommit reports whether a step may be taken while other objects of the slot are not copied yet.
func (s Step) beforeCommit() bool { return s == Freeze || s == Copy || s == Verify }

// inCompany reports whether a step may be taken with several objects at one revision. Lists and watches of API servers may then show
// the step of one object and not that of another, for a moment or, if a watch is resumed just there, for good. What is frozen and
// what has left is not shown, so that clients miss nothing; engines stand back from both, so that it is enough to have seen one. A
// copy is looked for at the revision it tells, and what is activated is shown: these are alone.
func (s Step) inCompany() bool { return s == Freeze || s == Commit }
