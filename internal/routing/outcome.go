package routing

import (
	"slices"
	"time"

	"github.com/cellplane/cellplane/internal/slots"
)

// creation is an object that a cell has stored perhaps after it had lost the slot. The mover carries such an object over or, if the new
// cell has another one of its name, discards it. What is stored after the mover has finished is in no cell that is read, and is removed.
type creation struct {
	// cell is the name of the cell that has stored the object, and uid its UID there.
	cell, uid string
	// missed is set if the last search has not found the object. It may have moved meanwhile.
	missed bool
	hold   hold
}

// longestOutcomeWait is the longest wait between two looks. The mover may take long to reach the slot, and many creations may wait.
const longestOutcomeWait = 500 * time.Millisecond

// unconfirmed begins to find out what became of an object whose cell does not confirm the view.
func (m *Machine) unconfirmed(now time.Time, in Input) Action {
	switch {
	case m.request.DryRun:
		return m.awaitView(now) // nothing was stored, so it is sent again
	case in.UID == "":
		return unknownOutcome
	}
	m.created = creation{cell: m.view.Name(m.found.Cell), uid: in.UID, hold: hold{longest: longestOutcomeWait}}
	return m.undecided(now, in)
}

// undecided continues after a cell has not confirmed the view: with a later view if this one is outdated, otherwise with the next look.
func (m *Machine) undecided(now time.Time, in Input) Action {
	if !in.Stale {
		return m.lookLater(now)
	}
	m.phase = awaitingOutcome
	return m.created.hold.awaitView(now, m.bounds.Outcome).forOutcome()
}

func (m *Machine) lookLater(now time.Time) Action {
	m.phase = waitingOutcome
	return m.created.hold.wait(now, m.bounds.Outcome).forOutcome()
}

// lookForCreation looks in all cells that may have the object.
func (m *Machine) lookForCreation() Action {
	route := m.view.Route(m.request.Slot)
	cells := []slots.Index{route.New}
	if route.Moving() {
		cells = append(cells, route.Old)
	}
	if cell, found := m.view.Index(m.created.cell); found {
		cells = append(cells, cell)
	}
	slices.Sort(cells)
	cells = slices.DeleteFunc(slices.Compact(cells), func(cell slots.Index) bool { return m.view.Cell(cell).State == slots.Failed })
	m.phase = searchCreation
	return Action{Kind: LookAll, Cells: cells, Keep: true}
}

// judgeCreation judges what the cells hold.
func (m *Machine) judgeCreation(now time.Time, in Input) Action {
	var own []Sighting
	for _, sighting := range in.Found {
		if sighting.UID == m.created.uid {
			own = append(own, sighting)
		}
	}
	route := m.view.Route(m.request.Slot)
	home, known := m.view.Index(m.created.cell)
	for _, sighting := range own {
		switch {
		case sighting.State == Live && (!known || sighting.Cell != home):
			return Action{Kind: Serve} // only the mover, or the loss of its cell, brings an active object to another cell
		case sighting.State == Live && route.New == home:
			m.found = sighting
			return m.confirm(confirmOutcome)
		}
	}
	exists := func(s Sighting) bool { return s.State.Exists() }
	stays := func(s Sighting) bool { return exists(s) && s.Cell != route.New && !m.leaves(s.Cell, route) }
	switch {
	case in.Unreachable:
		return m.lookLater(now)
	case slices.ContainsFunc(own, stays):
		return unknownOutcome // nobody reads the object, and nobody moves it
	case slices.ContainsFunc(own, exists):
		m.created.missed = false
		return m.lookLater(now)
	case !m.created.missed:
		m.created.missed = true
		return m.lookLater(now)
	case wasDiscarded(m.view, own, in.Found):
		return Action{Kind: Refuse, Reason: AlreadyExists}
	default:
		return unknownOutcome
	}
}

// leaves reports whether the mover takes the object out of a cell.
func (m *Machine) leaves(cell slots.Index, route slots.Route) bool {
	return route.Moving() && route.Old == cell || m.view.Cell(cell).State == slots.Out
}

// wasDiscarded reports whether the mover has discarded an object because the new cell had another one: its remains name that one. If that
// one has changed since, it is not known whether it was there before.
func wasDiscarded(view *View, own, found []Sighting) bool {
	for _, remains := range own {
		name, version, ok := ParsePlace(remains.CopiedAt)
		cell, known := view.Index(name)
		if remains.State != Moved || !ok || !known {
			continue
		}
		for _, other := range found {
			if other.Cell == cell && other.State == Live && other.UID != remains.UID && other.revision() == version {
				return true
			}
		}
	}
	return false
}

var unknownOutcome = Action{Kind: Refuse, Reason: UnknownOutcome}

// forOutcome returns an action of a hold for a creation whose answer is kept.
func (a Action) forOutcome() Action {
	if a.Final() {
		return unknownOutcome
	}
	a.Keep = true
	return a
}
