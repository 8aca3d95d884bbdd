package routing

import (
	"time"

	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
)

// Op is what a request does to its object.
type Op int

// The operations.
const (
	// Read reads the object.
	Read Op = iota
	// Change changes, deletes or, for some verbs, creates the object named in the path.
	Change
	// Create creates the object named in the body.
	Create
	// Attach reads or writes a record kept in the object's cell.
	Attach
	// Stream is a connection that is passed on as it comes.
	Stream
)

// Request is a request for one object.
type Request struct {
	Op Op
	// Placement is ByName, ByTemplate or Anywhere: what lives on the hub only is not routed.
	Placement placement.Place
	Slot      slots.Slot
	// OnHub is set for the binding of a template that lives on the hub. The view must include the hub.
	OnHub bool
	// Blind is set for a Change that the cell cannot refuse while the object is frozen: a Scale does not have the labels of the object it
	// scales, and what is created beneath an object has no labels at all.
	Blind bool
	// Versioned is set for a Change that names the version of its object. Freezing an object changes its version, so that a cell which has carried it
	// out had the object in use.
	Versioned bool
	// Nameless is set for a Create without a name, which every API server refuses alike.
	Nameless bool
	// DryRun is set for a write that stores nothing.
	DryRun bool
}

// Machine routes one request. Call Start once, then Step with the outcome of each Action until one is Final.
type Machine struct {
	request Request
	bounds  Bounds
	view    *View
	hold    hold

	phase phase
	// found is where the object was last seen, or where it would be created.
	found Sighting
	// write is the write under way, sent at the time sent to the cell found.Cell.
	write Write
	sent  time.Time
	// creates is set when a Change is known to create its object.
	creates bool
	// leaving is set while a Change goes to the cell that the object is leaving.
	leaving bool
	// created is an object whose creation the cell has not confirmed.
	created creation
}

// phase is what the machine waits for.
type phase int

const (
	searchNew phase = iota
	searchOld
	searchNewAgain
	searchAll
	// checkOld: whether the name of an object to be created is taken in the old cell.
	checkOld
	// fetch: the read of an object that has been found.
	fetch
	send
	// confirmAbsent: whether the view that leads to a cell without the object is in force.
	confirmAbsent
	// confirmVanished: the same, where the cell has the remains of a moved object.
	confirmVanished
	// confirmCreated: whether the view was in force when the object was created.
	confirmCreated
	waiting
	awaitingView
	// What follows finds out what became of an object that was created.
	searchCreation
	confirmOutcome
	waitingOutcome
	awaitingOutcome
)

// New returns a machine that has not started.
func New(request Request, view *View, bounds Bounds) Machine {
	return Machine{request: request, view: view, bounds: bounds}
}

// Start returns the first action.
func (m *Machine) Start(now time.Time) Action {
	route := m.route()
	m.leaving = false
	switch {
	case m.request.Op == Create:
		return m.startCreate(now, route)
	case m.request.Op == Read || m.request.Placement != placement.ByName || route.Moving():
		return m.look(searchNew, route.New)
	}
	m.found = Sighting{Cell: route.New}
	switch m.request.Op {
	case Stream:
		return Action{Kind: Forward, Cell: route.New}
	case Attach:
		return m.send(now, Write{Epoch: m.view.Latest()})
	}
	// A write that cannot create anything is valid in the latest epoch. One that can has to carry the epoch in force.
	switch {
	case m.stable():
		return m.send(now, Write{Epoch: m.view.Latest()})
	case m.creates || m.request.Blind:
		return m.send(now, Write{Epoch: m.view.Epoch()})
	default:
		return m.send(now, Write{Epoch: m.view.Latest(), Existing: true})
	}
}

// Step takes the outcome of the last action and returns the next.
func (m *Machine) Step(now time.Time, in Input) Action {
	switch m.phase {
	case searchNew, searchOld, searchNewAgain:
		return m.looked(now, in)
	case searchAll:
		return m.lookedAll(now, in)
	case checkOld:
		if in.State.Exists() {
			return Action{Kind: Refuse, Reason: AlreadyExists}
		}
		return m.create(now, m.route())
	case fetch:
		return m.fetched(now, in.State)
	case send:
		return m.answered(now, in.Result)
	case confirmAbsent, confirmVanished, confirmCreated, confirmOutcome:
		return m.confirmed(now, in)
	case searchCreation:
		return m.judgeCreation(now, in)
	case waiting, waitingOutcome:
		if in.View != nil && in.View.Replaces(m.view) {
			m.view = in.View
		}
	case awaitingView, awaitingOutcome:
		if in.View == nil {
			return m.notReplaced()
		}
		m.view = in.View
	}
	if m.phase == waitingOutcome || m.phase == awaitingOutcome {
		return m.lookForCreation()
	}
	return m.Start(now)
}

// View returns the view that the request is routed by.
func (m *Machine) View() *View { return m.view }

func (m *Machine) route() slots.Route {
	if m.request.OnHub {
		hub := m.view.HubIndex()
		return slots.Route{Old: hub, New: hub, OldBackup: slots.None, Backup: slots.None}
	}
	return m.view.Locate(m.request.Slot)
}

func (m *Machine) stable() bool { return m.request.OnHub || m.view.Stable(m.request.Slot) }

// look searches a cell. If the name determines the slot, the client's own read is sent at once.
func (m *Machine) look(phase phase, cell slots.Index) Action {
	m.phase, m.found = phase, Sighting{Cell: cell}
	if m.fetches() {
		return Action{Kind: Fetch, Cell: cell}
	}
	return Action{Kind: Look, Cell: cell}
}

// fetches reports whether the object is searched with the client's own read.
func (m *Machine) fetches() bool {
	return m.request.Op == Read && m.request.Placement == placement.ByName
}

// looked continues the search: new cell, old cell, new cell again.
func (m *Machine) looked(now time.Time, in Input) Action {
	m.found.State, m.found.Version = in.State, in.Version
	route := m.route()
	switch {
	case m.phase == searchNew && in.State != Live && route.Moving():
		return m.look(searchOld, route.Old)
	case m.phase == searchOld && !in.State.Exists():
		return m.look(searchNewAgain, route.New)
	case !in.State.Exists() && m.request.Placement != placement.ByName:
		m.phase = searchAll
		return Action{Kind: LookAll, Cells: m.view.Places(m.request.Placement)}
	}
	return m.searched(now)
}

// lookedAll ends the search for an object whose name does not lead to it. A live object counts more than a frozen one, and of several the
// first, as in lists.
func (m *Machine) lookedAll(now time.Time, in Input) Action {
	for _, sighting := range in.Found {
		if (sighting.State == Live && m.found.State != Live) || (sighting.State == Frozen && !m.found.State.Exists()) {
			m.found = sighting
		}
	}
	if !m.found.State.Exists() && in.Unreachable {
		return Action{Kind: Fail}
	}
	return m.searched(now)
}

// searched continues after the search.
func (m *Machine) searched(now time.Time) Action {
	switch m.request.Op {
	case Stream:
		return Action{Kind: Forward, Cell: m.found.Cell}
	case Attach:
		return m.send(now, Write{Epoch: m.view.Latest()})
	case Change:
		return m.change(now)
	}
	if m.fetches() {
		return m.read(now)
	}
	m.phase = fetch
	return Action{Kind: Fetch, Cell: m.found.Cell}
}

// read judges the last answer to a read that was sent along the route of the name.
func (m *Machine) read(now time.Time) Action {
	switch m.found.State {
	case Absent:
		return m.confirm(confirmAbsent)
	case Moved:
		return m.awaitView(now) // the view is outdated: its owner has passed the object on
	default:
		return Action{Kind: Serve}
	}
}

// fetched judges the answer to a read of an object that was found before.
func (m *Machine) fetched(now time.Time, state State) Action {
	switch {
	case state.Exists():
		return Action{Kind: Serve}
	case m.found.State.Exists():
		return m.wait(now) // it has just gone, perhaps to another cell
	case state == Moved:
		return m.confirm(confirmVanished)
	default:
		return m.confirm(confirmAbsent)
	}
}

// change sends a write to the object that was found.
func (m *Machine) change(now time.Time) Action {
	route, stable, blind := m.route(), m.stable(), m.request.Blind
	state := m.found.State
	switch {
	case state == Frozen:
		return m.wait(now)
	case !state.Exists() && route.Moving() && !m.view.Ready:
		return m.awaitView(now) // nothing is created in a new cell before the epoch is in force
	}
	m.leaving = route.Moving() && state == Live && m.found.Cell == route.Old
	write := Write{Epoch: m.view.Latest()}
	if !stable && (!state.Exists() || blind) {
		write.Epoch = m.view.Epoch()
	}
	switch {
	case blind && m.leaving:
		write.Pinned = m.found.Version // the cell cannot see that the object has been frozen since
	case !blind:
		write.Existing = m.leaving || (!stable && state == Live)
	}
	return m.send(now, write)
}

// startCreate creates an object in the new cell, unless the old one still has it.
func (m *Machine) startCreate(now time.Time, route slots.Route) Action {
	switch {
	case m.request.Placement == placement.Anywhere || !route.Moving() || m.request.Nameless:
		return m.create(now, route)
	case !m.view.Ready:
		return m.awaitView(now)
	}
	m.phase = checkOld
	return Action{Kind: Look, Cell: route.Old}
}

func (m *Machine) create(now time.Time, route slots.Route) Action {
	m.found = Sighting{Cell: route.New}
	if m.request.Placement == placement.Anywhere || m.stable() {
		return m.send(now, Write{Epoch: m.view.Latest()})
	}
	return m.send(now, Write{Epoch: m.view.Epoch()})
}

func (m *Machine) send(now time.Time, write Write) Action {
	m.phase, m.write, m.sent = send, write, now
	return Action{Kind: Send, Cell: m.found.Cell, Write: write}
}

// answered judges the answer to a write.
func (m *Machine) answered(now time.Time, result Result) Action {
	if result == StaleEpoch {
		return m.awaitView(now)
	}
	if m.request.Op == Attach {
		return Action{Kind: Serve}
	}
	switch result {
	case ObjectFrozen:
		return m.wait(now)
	case ObjectAbsent:
		m.creates = true
		return m.wait(now)
	case Conflict:
		if m.write.Pinned != "" {
			return m.wait(now)
		}
	case NotFound:
		m.creates = true
		if m.leaving {
			return m.wait(now)
		}
		return m.confirm(confirmAbsent)
	case Created:
		if now.Sub(m.sent) >= m.bounds.WriteDrain && m.request.Placement != placement.Anywhere && !m.request.Versioned && m.write.Pinned == "" {
			return m.confirm(confirmCreated)
		}
	}
	return Action{Kind: Serve}
}

func (m *Machine) confirm(phase phase) Action {
	m.phase = phase
	return Action{Kind: Confirm, Cell: m.found.Cell, Keep: !m.request.DryRun && (phase == confirmCreated || phase == confirmOutcome)}
}

func (m *Machine) confirmed(now time.Time, in Input) Action {
	failed := in.Stale || in.Unreachable
	switch {
	case failed && m.phase == confirmCreated:
		return m.unconfirmed(now, in)
	case failed && m.phase == confirmOutcome:
		return m.undecided(now, in)
	case in.Stale:
		return m.awaitView(now)
	case m.phase == confirmVanished:
		return Action{Kind: Refuse, Reason: Vanished}
	default:
		return Action{Kind: Serve}
	}
}

func (m *Machine) wait(now time.Time) Action {
	m.phase = waiting
	return m.hold.wait(now, m.bounds.Hold)
}

// notReplaced ends a wait in which no later view has arrived.
func (m *Machine) notReplaced() Action {
	if m.phase == awaitingOutcome {
		return unknownOutcome
	}
	return Action{Kind: Refuse, Reason: HeldTooLong}
}

func (m *Machine) awaitView(now time.Time) Action {
	m.phase = awaitingView
	return m.hold.awaitView(now, m.bounds.Hold)
}
