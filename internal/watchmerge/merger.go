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
	// Epoch is the epoch of the topology.
	Epoch int64
	// Cells is the number of cells. Their indexes follow the order of their names.
	Cells int
	// Absent are cells without a stream, such as failed ones. Their field of the position does not change.
	Absent []int
	// Left are cells that are no longer part of the topology, with the resourceVersions after which none of their events matters. One that
	// is resumed below that is read up to it; the others count as absent.
	Left map[int]uint64
	// Start is the position to resume, with a resourceVersion for every cell. Without it the watch begins with initial events, and the
	// cells have to be watched with sendInitialEvents=true. allowWatchBookmarks=true is always needed.
	Start []uint64
	// Stages is the order in which cells send their initial events: a cell is not asked before all cells of lower stages are complete.
	// While objects move, the new cell must have a lower stage than the old one: what has arrived there by then, the old cell has
	// committed. slots.Map.Stages returns such an order. nil means all at once.
	Stages []int
	// InitialEventsEnd is set if the client wants a bookmark after the initial events.
	InitialEventsEnd bool
	// Bookmarks is set if the client allows others.
	Bookmarks bool
	// Encoding is that of the streams.
	Encoding splice.Encoding
	// Moves describes how objects move between cells. It may be nil while nothing moves.
	Moves Moves
	// Version returns the version of an object in a cell; false means that the object cannot be shown, and the client has to relist.
	// Without it events carry positions. With it bookmarks do, and one follows the events of each Offer if the client allows bookmarks.
	Version func(cell int, object *splice.Object) (string, bool)
}

// Output is an event for the client.
type Output struct {
	// Event is the event as a cell sent it.
	Event *splice.Event
	// Version is the resourceVersion to send it with.
	Version string
	// Cell is the cell of the object. It means nothing for bookmarks and errors.
	Cell int
}

// Append appends the encoded event.
func (o Output) Append(dst []byte) []byte { return o.Event.Append(dst, o.Version) }

// Merger merges the watches of several cells. It is not safe for concurrent use.
//
// An error of any method means that a cell violates the watch protocol. The watch has to be closed without another event; the client
// resumes at its position.
type Merger struct {
	options Options
	phase   phase
	cells   []cell
	out     []Output
	scratch []byte

	// end is the bookmark for the end of the initial events, bookmark the one for any other.
	end, bookmark *splice.Event
	bookmarked    time.Time
	// ahead is set while the position is ahead of the last one sent to the client.
	ahead bool
	// shown is set if objects with versions were sent since the last position.
	shown bool

	moves moveState
}

type phase int

const (
	// initial: cells send their initial events.
	initial phase = iota
	// catchUp: all have, but some must be read further to meet dependencies.
	catchUp
	// live: events carry positions.
	live
	// ended: no further events.
	ended
)

type cell struct {
	absent bool
	// until is the resourceVersion up to which the cell is read; 0 means as long as the watch lasts.
	until uint64
	// complete is set after all initial events.
	complete bool
	// version is the resourceVersion that the cell has been read up to.
	version uint64
	// held is the next event, which waits for its dependency.
	held *heldEvent
}

// done reports whether a cell that has left has been read as far as needed.
func (c *cell) done() bool { return c.until != 0 && c.version >= c.until }

type heldEvent struct {
	event   *splice.Event
	version uint64
	after   Dependency
}

// New returns a merger that has not seen any event.
func New(options Options, now time.Time) (*Merger, error) {
	m := &Merger{options: options, cells: make([]cell, options.Cells), bookmarked: now}
	if options.Start != nil && len(options.Start) != options.Cells {
		return nil, fmt.Errorf("merging the watches of %d cells: the position to resume has %d", options.Cells, len(options.Start))
	}
	for _, i := range options.Absent {
		if i < 0 || i >= options.Cells {
			return nil, fmt.Errorf("merging the watches of %d cells: cell %d does not exist", options.Cells, i)
		}
		m.cells[i].absent, m.cells[i].complete = true, true
	}
	for i, least := range options.Left {
		if i < 0 || i >= options.Cells {
			return nil, fmt.Errorf("merging the watches of %d cells: cell %d does not exist", options.Cells, i)
		}
		m.leave(i, least)
	}
	m.moves.begin(options)
	if options.Start != nil {
		m.phase = live
		for i := range m.cells {
			if options.Start[i] == 0 && !m.cells[i].absent {
				return nil, fmt.Errorf("merging the watches of %d cells: the position to resume has no version for cell %d", options.Cells, i)
			}
			m.cells[i].version, m.cells[i].complete = max(options.Start[i], m.cells[i].version), true
		}
	}
	if options.Stages != nil && len(options.Stages) != options.Cells {
		return nil, fmt.Errorf("merging the watches of %d cells: there are stages for %d", options.Cells, len(options.Stages))
	}
	if _, err := m.position(); err != nil { // the cells and the epoch do not change later
		return nil, err
	}
	return m, nil
}

// leave limits how far a cell that has left is read.
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

// Wants reports whether the next event of a cell should be read and offered. Leaving the events of a cell that is ahead of others in its
// stream bounds the memory.
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

// Live reports whether all initial events have been sent, and the watch is not over.
func (m *Merger) Live() bool { return m.phase == live }

// Settled reports whether the watch can be continued elsewhere at its position: the initial events are over, and no event waits for
// another.
func (m *Merger) Settled() bool {
	for i := range m.cells {
		if m.cells[i].held != nil {
			return false
		}
	}
	return m.phase == live
}

// Position returns the position of the watch. It is valid after the initial events.
func (m *Merger) Position() position.Position {
	p := position.Position{Epoch: m.options.Epoch, Versions: make([]uint64, len(m.cells))}
	for i := range m.cells {
		p.Versions[i] = m.cells[i].version
	}
	return p
}

// Outdated returns a function that tells which events about objects of cells are outdated by what the watch has shown, for a watch that is
// settled and continued elsewhere. It is nil if none are.
func (m *Merger) Outdated() func(cell int, object *splice.Object) bool {
	if len(m.moves.overtaken) == 0 {
		return nil
	}
	shown := &moveState{moves: m.moves.moves, overtaken: m.moves.overtaken} // and nothing else of the merger
	return shown.outdated
}

// Offer takes an event of a cell that is wanted and returns the events for the client. The result is valid until the next call.
func (m *Merger) Offer(i int, event *splice.Event, now time.Time) ([]Output, error) {
	m.out = m.out[:0]
	if !m.Wants(i) {
		return nil, fmt.Errorf("merging watches: unexpected event of cell %d", i)
	}
	if event.Type == splice.Error {
		m.emit(event, "")
		m.phase = ended
		return m.out, nil
	}
	version, err := strconv.ParseUint(event.Object.ResourceVersion, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("merging watches: cell %d sent the invalid resourceVersion %.40q", i, event.Object.ResourceVersion)
	}
	if m.cells[i].complete && version < m.cells[i].version {
		return nil, fmt.Errorf("merging watches: cell %d went back from resourceVersion %d to %d", i, m.cells[i].version, version)
	}
	switch m.phase {
	case initial:
		err = m.offerInitial(i, event, version)
	case catchUp:
		err = m.offerCatchUp(i, event, version)
	default:
		err = m.offerLive(i, event, version, now)
	}
	if err == nil && m.shown {
		err = m.sendBookmark(now)
	}
	return m.out, err
}

func (m *Merger) offerInitial(i int, event *splice.Event, version uint64) error {
	if event.Type != splice.Bookmark {
		m.offerObject(i, event)
		return nil
	}
	if !event.InitialEventsEnd {
		return nil // initial events cannot be resumed
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

// offerObject emits an object before there are positions.
func (m *Merger) offerObject(i int, event *splice.Event) {
	if m.moves.showsInitially(i, event) {
		m.emitInitial(i, event)
	}
}

// endInitial ends the initial events, unless a cell has to catch up.
func (m *Merger) endInitial() error {
	if m.phase == ended {
		return nil
	}
	for i := range m.cells {
		if c := &m.cells[i]; !c.absent && m.moves.lags(i, c.version) {
			return nil
		}
	}
	for _, copied := range m.moves.endInitial() {
		m.emitInitial(copied.cell, copied.event)
	}
	if m.phase == ended {
		return nil
	}
	m.phase = live
	if !m.options.InitialEventsEnd {
		m.ahead = true
		return nil
	}
	return m.emitAt(m.end)
}

func (m *Merger) offerLive(i int, event *splice.Event, version uint64, now time.Time) error {
	if event.Type == splice.Bookmark {
		if !event.InitialEventsEnd {
			m.bookmark = event
		}
		m.ahead = m.ahead || version > m.cells[i].version
		m.cells[i].version = version
		if err := m.release(); err != nil {
			return err
		}
		return m.tick(now)
	}
	m.cells[i].held = &heldEvent{event: event, version: version, after: m.moves.after(i, event)}
	return m.release()
}

// release emits all held events whose dependencies are met. Each may meet the dependency of another.
func (m *Merger) release() error {
	for i := 0; i < len(m.cells); i++ {
		held := m.cells[i].held
		if held == nil || !m.met(held.after) {
			continue
		}
		m.cells[i].held = nil
		m.cells[i].version = held.version
		if !m.moves.shows(i, held.event) {
			m.ahead = true
		} else if err := m.emitLive(i, held.event); err != nil || m.phase == ended {
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

// reached returns how far a cell has been read. There is no other event before a held one.
func (m *Merger) reached(i int) uint64 {
	c := &m.cells[i]
	if c.held != nil && c.held.version > 0 {
		return max(c.version, c.held.version-1)
	}
	return c.version
}

// Tick returns a bookmark if one is due. It is called periodically.
func (m *Merger) Tick(now time.Time) ([]Output, error) {
	m.out = m.out[:0]
	err := m.tick(now)
	return m.out, err
}

func (m *Merger) tick(now time.Time) error {
	if now.Sub(m.bookmarked) < BookmarkInterval {
		return nil
	}
	return m.sendBookmark(now)
}

// Last returns the bookmark to send before the watch is closed, if the position has advanced since the last event.
func (m *Merger) Last(now time.Time) ([]Output, error) {
	m.out = m.out[:0]
	err := m.sendBookmark(now)
	return m.out, err
}

func (m *Merger) sendBookmark(now time.Time) error {
	if m.phase != live || !m.ahead || !m.options.Bookmarks || m.bookmark == nil {
		return nil
	}
	m.bookmarked = now
	return m.emitAt(m.bookmark)
}

// Reopen returns the resourceVersion at which to reopen the stream of a cell. If resumable is false, some of its initial events may have
// been sent and be outdated now: the whole watch has to be closed.
func (m *Merger) Reopen(i int) (version uint64, resumable bool) {
	c := &m.cells[i]
	if c.held != nil {
		return c.held.version, true
	}
	return c.version, c.complete && m.phase != ended
}

// Expire ends the watch with an error event that makes the client relist: a cell no longer has the events after the position.
func (m *Merger) Expire() ([]Output, error) {
	m.out = m.out[:0]
	if m.phase == ended {
		return nil, errors.New("merging watches: the watch has already ended")
	}
	err := m.expire()
	return m.out, err
}

func (m *Merger) expire() error {
	event, err := splice.NewErrorEvent(m.options.Encoding, metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired,
		Message: "the resourceVersion is too old; list again and watch from there",
	})
	if err != nil {
		return err
	}
	m.emit(event, "")
	m.phase = ended
	return nil
}

// emitInitial emits an object before there are positions.
func (m *Merger) emitInitial(i int, event *splice.Event) {
	if m.options.Version == nil {
		m.emit(event, event.Object.ResourceVersion)
	} else if m.phase != ended {
		m.emitObject(i, event)
	}
}

// emitLive emits an object of a watch that can be resumed.
func (m *Merger) emitLive(i int, event *splice.Event) error {
	if m.options.Version == nil {
		return m.emitAt(event)
	}
	m.emitObject(i, event)
	return nil
}

// emitObject emits an object with its version.
func (m *Merger) emitObject(i int, event *splice.Event) {
	version, known := m.options.Version(i, &event.Object)
	if !known {
		_ = m.expire() // the Status can be encoded
		return
	}
	m.out = append(m.out, Output{Event: event, Version: version, Cell: i})
	m.ahead, m.shown = true, true
	if m.options.Bookmarks && m.bookmark == nil {
		m.bookmark = event.NewBookmark()
	}
}

func (m *Merger) emit(event *splice.Event, version string) {
	m.out = append(m.out, Output{Event: event, Version: version})
}

// emitAt emits an event with the position after it.
func (m *Merger) emitAt(event *splice.Event) error {
	version, err := m.position()
	if err != nil {
		return err
	}
	m.emit(event, version)
	m.ahead, m.shown = false, false
	return nil
}

func (m *Merger) position() (string, error) {
	var err error
	m.scratch, err = m.Position().Append(m.scratch[:0])
	return string(m.scratch), err
}
