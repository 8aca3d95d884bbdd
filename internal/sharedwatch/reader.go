package sharedwatch

import "slices"

// most is how much a reader takes at once.
const (
	mostEntries = 64
	mostBytes   = 64 << 10
)

// Reader reads a stream. It is not safe for concurrent use.
type Reader struct {
	stream *Stream
	next   uint64
	// position is that of the stream before the next entry.
	position []uint64
	// from is the position at which the reader began, until the stream has reached it.
	from []uint64
	// hides reports whether an event is outdated for this reader; nil if none is.
	hides func(*Entry) bool
}

// Hide has the reader leave out events that are outdated by what its watch has shown before it joined. The function is called while the
// stream is locked.
func (r *Reader) Hide(outdated func(*Entry) bool) { r.hides = outdated }

// Next appends the next entries to dst, but not all if there are many. If there are none, it returns a channel that is closed when that
// changes. The error is ErrOutrun or ErrEnded.
func (r *Reader) Next(dst []Entry) ([]Entry, <-chan struct{}, error) {
	s := r.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.next < s.first {
		return dst, nil, ErrOutrun
	}
	bytes, had := 0, len(dst)
	for at := int(r.next - s.first); at < len(s.entries) && len(dst)-had < mostEntries && bytes < mostBytes; at++ {
		e := &s.entries[at]
		r.next++
		advance(r.position, e)
		if e, shown := r.shows(e); shown {
			dst = append(dst, e)
			bytes += len(e.Data)
		}
	}
	switch {
	case len(dst) > had || r.next < s.first+uint64(len(s.entries)):
		return dst, nil, nil
	case s.ended:
		return dst, nil, ErrEnded
	}
	return dst, s.wait(), nil
}

// Wait returns a channel that is closed when the stream changes. The error is ErrEnded if it has ended.
func (r *Reader) Wait() (<-chan struct{}, error) {
	s := r.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, ErrEnded
	}
	return s.wait(), nil
}

// wait returns a channel that is closed with the next change.
func (s *Stream) wait() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// shows returns an entry as the reader sees it, after the position has been advanced past it.
func (r *Reader) shows(e *Entry) (Entry, bool) {
	hidden := e.Bookmark == nil && r.hides != nil && r.hides(e)
	if r.from == nil {
		return *e, !hidden
	}
	hidden = hidden || e.Bookmark == nil && e.Revision <= r.from[e.Cell]
	if r.stream.covers(r.position, r.from) {
		raise(r.position, r.from) // cells that are not read
		r.from = nil
	}
	if e.Bookmark == nil {
		return *e, !hidden
	}
	own := *e
	own.Position, own.Data = r.Position(), nil
	return own, true
}

// Position returns the position after what Next has returned.
func (r *Reader) Position() []uint64 {
	position := slices.Clone(r.position)
	if r.from != nil {
		raise(position, r.from)
	}
	return position
}
