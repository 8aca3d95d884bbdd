package watchmerge

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/splice"
)

// BookmarkInterval is the least time between two bookmarks.
const BookmarkInterval = time.Minute

// Options describe a merged watch.
type Options struct {
	// Epoch is the generation of the topology the cells are of.
	Epoch int64
	// Cells is the number of cells; they are known by their indexes in the order of their names.
	Cells int
	// Absent are the cells that have failed. They have no stream, and their field of the position stays as it is.
	Absent []int
	// Left are cells that are no longer part of the topology, with the resourceVersions after which nothing in them concerns anybody.
	// One that is resumed below that is read until it has got there; the others are as absent, and at least there.
	Left map[int]uint64
	// Start is the position to resume, with a resourceVersion for every cell. Without it the watch begins with initial events; the
	// cells have to be asked with sendInitialEvents=true, and always with allowWatchBookmarks=true.
	Start []uint64
	// Stages say in which order cells begin their initial events: one of a higher stage is not asked before all of lower stages are
	// complete. While objects move, the cell one moves to must be of a lower stage than the one it comes from: whatever has
	// arrived there by then, the old cell knows. slots.Map.Stages returns such an order. nil means all at once.
	Stages []int
	// InitialEventsEnd is set if the client wants a bookmark after the initial events.
	InitialEventsEnd bool
	// Bookmarks is set if the client allows others.
	Bookmarks bool
	// Encoding is that of the streams.
	Encoding splice.Encoding
	// Moves tells about objects on their way between cells. It may be nil while the topology does not change.
	Moves Moves
}

// Output is an event for the client.
type Output struct {
	// Event is the event as a cell sent it.
	Event *splice.Event
	// Version is the resourceVersion it is to be sent with.
	Version string
}

// Append appends the event as it is sent, in its frame.
func (o Output) Append(dst []byte) []byte { return o.Event.Append(dst, o.Version) }

// Merger merges the watches of several cells. It is not safe for concurrent use.
//
// An error of any of its methods means that a cell does not keep to the protocol; the watch has to be closed without another event, and
// the client resumes where it is.
type Merger struct {
	options Options
	phase   phase
	cells   []cell
	out     []Output
	scratch []byte

	// end is the bookmark to tell the end of the initial events with, and bookmark that for any other.
	end, bookmark *splice.Event
	bookmarked    time.Time
	// untold is set while the position is ahead of what the client knows.
	untold bool

	moves moveState
}

type phase int

const (
	// initial: cells send their initial events.
	initial phase = iota
	// catchUp: all have, but some must go further for the whole to make sense.
	catchUp
	// live: events carry positions.
	live
	// ended: nothing comes any more.
	ended
)

type cell struct {
	absent bool
	// until is how far the cell is read; 0 means for as long as the watch lasts.
	until uint64
	// complete is set when all initial events have been seen.
	complete bool
	// version is what has been seen of the cell.
	version uint64
	// held is the next event, kept until its dependency is met.
	held *heldEvent
}

// done reports whether a cell that has left has been read as far as it has to be.
func (c *cell) done() bool { return c.until != 0 && c.version >= c.until }

type heldEvent struct {
	event   *splice.Event
	version uint64
	after   Dependency
}

// New returns a merger that has seen nothing yet.
func New(options Options, now time.Time) (*Merger, error) {
	m := &Merger{options: options, cells: make([]cell, options.Cells), bookmarked: now}
	if options.Start != nil && len(options.Start) != options.Cells {
		return nil, fmt.Errorf("merging the watches of %d cells: the position to resume has %d", options.Cells, len(options.Start))
	}
	for _, i := range options.Absent {
		if i < 0 || i >= options.Cells {
			return nil, fmt.Errorf("merging the watches of %d cells: there is no cell number %d", options.Cells, i)
		}
		m.cells[i].absent, m.cells[i].complete = true, true
	}
	for i, least := range options.Left {
		if i < 0 || i >= options.Cells {
			return nil, fmt.Errorf("merging the watches of %d cells: there is no cell number %d", options.Cells, i)
		}
		m.leave(i, least)
	}
	m.moves.begin(options)
	if options.Start != nil {
		m.phase = live
		for i := range m.cells {
			if options.Start[i] == 0 && !m.cells[i].absent {
				return nil, fmt.Errorf("merging the watches of %d cells: the position does not say where to resume cell number %d", options.Cells, i)
			}
			m.cells[i].version, m.cells[i].complete = max(options.Start[i], m.cells[i].version), true
		}
	}
	if options.Stages != nil && len(options.Stages) != options.Cells {
		return nil, fmt.Errorf("merging the watches of %d cells: there are stages for %d", options.Cells, len(options.Stages))
	}
	if _, err := m.position(); err != nil { // it can be encoded now, or never
		return nil, err
	}
	return m, nil
}

// leave lets a cell that has left be read as far as it has to be.
func (m *Merger) leave(i int, least uint64) {
	if m.options.Start != nil && m.options.Start[i] < least && m.options.Start[i] != 0 {
		m.cells[i].until = least
		return
	}
	m.cells[i].absent, m.cells[i].complete, m.cells[i].version = true, true, least
}

// MayOpen reports whether the stream of a cell may be opened.
func (m *Merger) MayOpen(i int) bool {
	if m.cells[i].absent || m.cells[i].done() {
		return false
	}
	for j := range m.cells {
		if m.options.Stages != nil && m.options.Stages[j] < m.options.Stages[i] && !m.cells[j].complete {
			return false
		}
	}
	return true
}

// Wants reports whether the next event of a cell should be read and offered. A cell that is not wanted is ahead of another; leaving its
// events where they are is what keeps memory bounded.
func (m *Merger) Wants(i int) bool {
	c := &m.cells[i]
	switch {
	case c.absent || c.held != nil || c.done():
		return false
	case m.phase == initial:
		return !c.complete && m.MayOpen(i)
	case m.phase == catchUp:
		return m.moves.lags(i, c.version)
	default:
		return m.phase == live
	}
}

// Ended reports whether the watch is over.
func (m *Merger) Ended() bool { return m.phase == ended }

// Position returns where the watch is. It is meaningful once the initial events are over.
func (m *Merger) Position() position.Position {
	p := position.Position{Epoch: m.options.Epoch, Versions: make([]uint64, len(m.cells))}
	for i := range m.cells {
		p.Versions[i] = m.cells[i].version
	}
	return p
}

// Offer takes an event of a cell that is wanted and returns what the client gets. The result is good until the next call.
func (m *Merger) Offer(i int, event *splice.Event, now time.Time) ([]Output, error) {
	m.out = m.out[:0]
	if !m.Wants(i) {
		return nil, fmt.Errorf("merging watches: an event of cell number %d came out of turn", i)
	}
	if event.Type == splice.Error {
		m.emit(event, "")
		m.phase = ended
		return m.out, nil
	}
	version, err := strconv.ParseUint(event.Object.ResourceVersion, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("merging watches: cell number %d sent the resourceVersion %.40q", i, event.Object.ResourceVersion)
	}
	if m.cells[i].complete && version < m.cells[i].version {
		return nil, fmt.Errorf("merging watches: cell number %d went back from resourceVersion %d to %d", i, m.cells[i].version, version)
	}
	switch m.phase {
	case initial:
		err = m.offerInitial(i, event, version)
	case catchUp:
		err = m.offerCatchUp(i, event, version)
	default:
		err = m.offerLive(i, event, version, now)
	}
	return m.out, err
}

func (m *Merger) offerInitial(i int, event *splice.Event, version uint64) error {
	if event.Type != splice.Bookmark {
		m.offerObject(i, event)
		return nil
	}
	if !event.InitialEventsEnd {
		return nil // progress within the initial events is of no use to anybody
	}
	m.cells[i].complete, m.cells[i].version, m.end = true, version, event
	for j := range m.cells {
		if !m.cells[j].complete {
			return nil
		}
	}
	m.phase = catchUp
	return m.endInitial()
}

func (m *Merger) offerCatchUp(i int, event *splice.Event, version uint64) error {
	m.cells[i].version = version
	if event.Type != splice.Bookmark {
		m.offerObject(i, event)
	}
	return m.endInitial()
}

// offerObject passes an object on before there are positions.
func (m *Merger) offerObject(i int, event *splice.Event) {
	if m.moves.showsInitially(i, event) {
		m.emit(event, event.Object.ResourceVersion)
	}
}

// endInitial ends the initial events, unless a cell has to catch up.
func (m *Merger) endInitial() error {
	for i := range m.cells {
		if c := &m.cells[i]; !c.absent && m.moves.lags(i, c.version) {
			return nil
		}
	}
	for _, event := range m.moves.endInitial() {
		m.emit(event, event.Object.ResourceVersion)
	}
	m.phase = live
	if !m.options.InitialEventsEnd {
		m.untold = true
		return nil
	}
	return m.emitAt(m.end)
}

func (m *Merger) offerLive(i int, event *splice.Event, version uint64, now time.Time) error {
	if event.Type == splice.Bookmark {
		if !event.InitialEventsEnd {
			m.bookmark = event
		}
		m.untold = m.untold || version > m.cells[i].version
		m.cells[i].version = version
		if err := m.release(); err != nil {
			return err
		}
		return m.tick(now)
	}
	m.cells[i].held = &heldEvent{event: event, version: version, after: m.moves.after(i, event)}
	return m.release()
}

// release passes on all held events whose dependencies are met. One that goes out may be what another waits for.
func (m *Merger) release() error {
	for i := 0; i < len(m.cells); i++ {
		held := m.cells[i].held
		if held == nil || !m.met(held.after) {
			continue
		}
		m.cells[i].held = nil
		m.cells[i].version = held.version
		if !m.moves.shows(i, held.event) {
			m.untold = true
		} else if err := m.emitAt(held.event); err != nil {
			return err
		}
		i = -1
	}
	return nil
}

func (m *Merger) met(after Dependency) bool {
	if after.Version == 0 || after.Cell < 0 || after.Cell >= len(m.cells) || m.cells[after.Cell].absent || m.cells[after.Cell].done() {
		return true
	}
	return m.reached(after.Cell) >= after.Version
}

// reached is how far a cell has been read: a held event tells that there is nothing before it.
func (m *Merger) reached(i int) uint64 {
	c := &m.cells[i]
	if c.held != nil && c.held.version > 0 {
		return max(c.version, c.held.version-1)
	}
	return c.version
}

// Tick returns a bookmark if one is due. It is called now and then.
func (m *Merger) Tick(now time.Time) ([]Output, error) {
	m.out = m.out[:0]
	err := m.tick(now)
	return m.out, err
}

func (m *Merger) tick(now time.Time) error {
	if now.Sub(m.bookmarked) < BookmarkInterval {
		return nil
	}
	return m.tell(now)
}

// Last returns a bookmark, if there is anything to tell, for the moment before the watch is closed: its time is over.
func (m *Merger) Last(now time.Time) ([]Output, error) {
	m.out = m.out[:0]
	err := m.tell(now)
	return m.out, err
}

func (m *Merger) tell(now time.Time) error {
	if m.phase != live || !m.untold || !m.options.Bookmarks || m.bookmark == nil {
		return nil
	}
	m.bookmarked = now
	return m.emitAt(m.bookmark)
}

// Reopen returns the resourceVersion at which to watch a cell again whose stream has ended. If resumable is false, some of its
// initial events have been passed on, and nobody can tell which of them still hold: the whole watch has to be closed.
func (m *Merger) Reopen(i int) (version uint64, resumable bool) {
	c := &m.cells[i]
	if c.held != nil {
		return c.held.version, true
	}
	return c.version, c.complete && m.phase != ended
}

// Expire ends the watch with an error that tells the client to list again: a cell no longer has the events after the position.
func (m *Merger) Expire() ([]Output, error) {
	m.out = m.out[:0]
	if m.phase == ended {
		return nil, errors.New("merging watches: a watch that has ended cannot expire")
	}
	event, err := splice.NewErrorEvent(m.options.Encoding, metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired,
		Message: "the resourceVersion is too old; list again and watch from there",
	})
	if err != nil {
		return nil, err
	}
	m.emit(event, "")
	m.phase = ended
	return m.out, nil
}

func (m *Merger) emit(event *splice.Event, version string) {
	m.out = append(m.out, Output{Event: event, Version: version})
}

// emitAt passes an event on with the position after it.
func (m *Merger) emitAt(event *splice.Event) error {
	version, err := m.position()
	if err != nil {
		return err
	}
	m.emit(event, version)
	m.untold = false
	return nil
}

func (m *Merger) position() (string, error) {
	var err error
	m.scratch, err = m.Position().Append(m.scratch[:0])
	return string(m.scratch), err
}
