package sharedwatch

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cellplane/cellplane/internal/splice"
)

var (
	// ErrOutrun means that the history has dropped events that a reader has not read.
	ErrOutrun = errors.New("the reader is too slow")
	// ErrEnded means that there are no further events.
	ErrEnded = errors.New("the stream has ended")
)

// Entry is an event of a stream. It must not be changed.
type Entry struct {
	// Cell and Revision say where an object was changed.
	Cell     int
	Revision uint64
	// Deleted is the UID of a deleted object.
	Deleted string
	// Key is that of the object, and UID its UID.
	Key, UID string
	// Received is when the event arrived. Entries are appended in this order.
	Received time.Time
	// Bookmark is set for a bookmark, which has no object but the revisions of all cells.
	Bookmark *splice.Event
	Position []uint64
	// Data is the encoded event; nil for a bookmark that the reader has to encode with its own position.
	Data []byte
}

// overhead is about what an entry needs beside its data.
const overhead = 256

// Object returns the identity of the object.
func (e *Entry) Object() *splice.Object {
	namespace, name, found := strings.Cut(e.Key, "/")
	if !found {
		namespace, name = "", e.Key
	}
	return &splice.Object{Namespace: namespace, Name: name, UID: e.UID}
}

func (e *Entry) size() int {
	return overhead + len(e.Key) + len(e.UID) + len(e.Data) + 8*len(e.Position)
}

// Limits bound the history of a stream. The last entry is always kept.
type Limits struct {
	Entries int
	// Bytes returns the highest size. It may change.
	Bytes func() int
}

// Stream is a merged watch with its recent events. It is safe for concurrent use.
type Stream struct {
	limits Limits
	// absent are the cells that are not read. Their revisions mean nothing.
	absent []bool

	mu      sync.Mutex
	entries []Entry
	// first is the number of the first entry.
	first uint64
	bytes int
	// before is the position before the first entry, and after that after the last one.
	before, after []uint64
	// since is when everything before the first entry was committed at the latest.
	since    time.Time
	bookmark *splice.Event
	ended    bool
	// precedes reports whether what is before the stream is certain not to be a consequence of a write in a cell; nil if that is not known.
	precedes func(cell int, write Interval) bool
	changed  chan struct{} // closed and replaced with every change that a reader waits for; nil if none waits
}

// New returns a stream that begins at a position. Everything that the position includes was committed before the time.
func New(limits Limits, start []uint64, before time.Time, absent []bool) *Stream {
	return &Stream{limits: limits, absent: absent, before: slices.Clone(start), after: slices.Clone(start), since: before}
}

// Append adds entries to the stream, and drops old ones that exceed the limits.
func (s *Stream) Append(entries ...Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(entries) == 0 {
		return
	}
	for i := range entries {
		advance(s.after, &entries[i])
		s.bytes += entries[i].size()
		if entries[i].Bookmark != nil {
			s.bookmark = entries[i].Bookmark
		}
	}
	s.entries = append(s.entries, entries...)
	s.drop()
	s.notify()
}

func (s *Stream) drop() {
	most, old := s.limits.Bytes(), 0
	for len(s.entries)-old > 1 && (s.bytes > most || len(s.entries)-old > s.limits.Entries) {
		s.bytes -= s.entries[old].size()
		advance(s.before, &s.entries[old])
		s.since = latest(s.since, s.entries[old].Received)
		old++
	}
	if old > 0 {
		s.first += uint64(old)
		s.entries = slices.Delete(s.entries, 0, old)
	}
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func (s *Stream) notify() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// End ends the stream. Readers still get what is in the history.
func (s *Stream) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.notify()
}

// Template returns a bookmark of the stream, for a reader that has to encode one; nil if there has been none.
func (s *Stream) Template() *splice.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bookmark
}

// Size returns the number of entries in the history and their size.
func (s *Stream) Size() (entries, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries), s.bytes
}

// advance moves a position past an entry.
func advance(position []uint64, e *Entry) {
	if e.Bookmark != nil {
		raise(position, e.Position)
	} else if e.Cell >= 0 && e.Cell < len(position) {
		position[e.Cell] = max(position[e.Cell], e.Revision)
	}
}

// raise sets the fields of a position to those of another that are higher.
func raise(position, other []uint64) {
	for i := range position {
		position[i] = max(position[i], other[i])
	}
}

// covers reports whether a position is not below another in any cell that is read.
func (s *Stream) covers(position, other []uint64) bool {
	for i := range position {
		if !s.absent[i] && position[i] < other[i] {
			return false
		}
	}
	return true
}

// JoinAt returns a reader of all events after a position. It is false if the history may not contain all of them.
func (s *Stream) JoinAt(position []uint64) (*Reader, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(position) != len(s.before) || !s.covers(position, s.before) {
		return nil, false
	}
	r := &Reader{stream: s, next: s.first, position: slices.Clone(s.before)}
	for i := range s.entries {
		e := &s.entries[i]
		if e.Bookmark == nil && e.Revision > position[e.Cell] || e.Bookmark != nil && !s.covers(position, e.Position) {
			break
		}
		advance(r.position, e)
		r.next++
	}
	if !s.covers(r.position, position) {
		r.from = slices.Clone(position)
	}
	return r, true
}

// JoinAfter returns a reader of all events after the one of an object, also if the stream has ended. It is false if the object's event is not in the history, or if an
// event before it may be a consequence of it. If nothing is known about the write of the object, its key is returned.
func (s *Stream) JoinAfter(cell int, revision uint64, known func(e *Entry) (Interval, bool)) (r *Reader, key string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.find(cell, revision)
	if at < 0 {
		return nil, "", false
	}
	write, found := known(&s.entries[at])
	if !found {
		return nil, s.entries[at].Key, false
	}
	if !s.independent(at, cell, write, known) {
		return nil, "", false
	}
	r = &Reader{stream: s, next: s.first + uint64(at) + 1, position: slices.Clone(s.before)}
	for i := range s.entries[:at+1] {
		advance(r.position, &s.entries[i])
	}
	return r, "", true
}

// independent reports whether what precedes an entry is certain not to be a consequence of a write in a cell.
func (s *Stream) independent(at, cell int, write Interval, known func(e *Entry) (Interval, bool)) bool {
	for i := at - 1; i >= 0 && !s.entries[i].Received.Before(write.Begun); i-- {
		e := &s.entries[i]
		if e.Bookmark != nil || e.Cell == cell {
			continue
		}
		if other, found := known(e); !found || other.Ended.After(write.Begun) {
			return false
		}
	}
	return s.since.Before(write.Begun) || s.first == 0 && s.precedes != nil && s.precedes(cell, write)
}

// Independent reports whether all events of the stream, and before it, are certain not to be consequences of a write in a cell.
func (s *Stream) Independent(cell int, write Interval, known func(e *Entry) (Interval, bool)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.independent(len(s.entries), cell, write, known)
}

// Precede sets the function that knows whether what is before the stream is certain not to be a consequence of a write in a cell; nil if
// nobody knows. It is called while the stream is locked.
func (s *Stream) Precede(independent func(cell int, write Interval) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.precedes = independent
}

// Position returns the position after the last entry.
func (s *Stream) Position() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.after)
}

// find returns the index of the last entry of a revision, or -1.
func (s *Stream) find(cell int, revision uint64) int {
	for i := len(s.entries) - 1; i >= 0; i-- {
		if e := &s.entries[i]; e.Bookmark == nil && e.Cell == cell && e.Revision <= revision {
			if e.Revision == revision {
				return i
			}
			return -1
		}
	}
	return -1
}
