package splice

import (
	"fmt"
	"io"
)

// EventType is the type of a watch event.
type EventType string

// The types of watch events.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Bookmark EventType = "BOOKMARK"
	Error    EventType = "ERROR"
)

// InitialEventsEnd is the annotation of the bookmark that ends the initial events of a watch.
const InitialEventsEnd = "k8s.io/initial-events-end"

// Encoding is the encoding of a watch.
type Encoding int

// The encodings of watches.
const (
	// JSON is a sequence of JSON objects.
	JSON Encoding = iota
	// Protobuf is a sequence of protobuf messages, each preceded by its length in four bytes.
	Protobuf
)

// Event is an event of a watch.
type Event struct {
	// Type is the event's type.
	Type EventType
	// Object is the object of the event; in a Table that of the first row. A bookmark has little more than a resourceVersion, an error
	// nothing.
	Object Object
	// InitialEventsEnd is set for the bookmark that ends the initial events.
	InitialEventsEnd bool
	// Code and Reason are those of an error's Status.
	Code   int
	Reason string

	encoding Encoding
	raw      []byte
	// json are the places of the resourceVersion, in order.
	json []edit
	// objects are the places of the objects in a Table's rows.
	objects []span
	proto   protoPlace
}

// edit is a place to write a resourceVersion.
type edit struct {
	span
	// before and after are written around it if there was none: the member's name and the comma.
	before, after string
}

// Append appends the event, framed as on the wire, with another resourceVersion in its object. An error is appended as it is.
func (e *Event) Append(dst []byte, version string) []byte {
	if e.encoding == Protobuf {
		return e.appendProto(dst, version)
	}
	return e.appendJSON(dst, version, nil)
}

// AppendWithoutObjects is Append for a Table watch whose client does not want the objects in the rows.
func (e *Event) AppendWithoutObjects(dst []byte, version string) []byte {
	if e.encoding == Protobuf {
		return e.appendProto(dst, version)
	}
	return e.appendJSON(dst, version, e.objects)
}

// NewBookmark returns a bookmark for a watch of objects of the event's kind. It returns nil for a Table, whose bookmarks only an API
// server can make.
func (e *Event) NewBookmark() *Event {
	raw := e.jsonBookmark
	if e.encoding == Protobuf {
		raw = e.protoBookmark
	}
	content, err := raw()
	if err != nil || content == nil {
		return nil
	}
	bookmark, err := ParseEvent(content, e.encoding)
	if err != nil {
		return nil
	}
	return bookmark
}

// Size returns the size of the event as received, which is about what Append appends.
func (e *Event) Size() int { return len(e.raw) }

// EventReader reads the events of a watch.
type EventReader struct {
	// Hold, if set, is called before the memory for an event larger than a small buffer is allocated, with the number of bytes that its
	// reader, its parser and its writer will hold. It may wait. Release is called when the next event is read, with the sum.
	Hold    func(bytes int) error
	Release func(bytes int)

	held     int
	encoding Encoding
	json     *jsonStream
	proto    *frameReader
}

// NewEventReader returns a reader of the events in r. No event may be larger than maxEvent bytes; 0 means 32 MiB.
func NewEventReader(r io.Reader, encoding Encoding, maxEvent int) *EventReader {
	reader := &EventReader{encoding: encoding}
	if encoding == Protobuf {
		reader.proto = newFrameReader(r, maxEvent)
		reader.proto.hold = reader.hold
	} else {
		reader.json = newJSONStream(r, maxEvent)
		reader.json.hold = reader.hold
	}
	return reader
}

// copies is how often an event is in memory: in the buffer, in the Event and in what is written.
const copies = 3

func (r *EventReader) hold(bytes int) error {
	bytes *= copies
	if err := held(r.Hold, bytes); err != nil {
		return err
	}
	r.held += bytes
	return nil
}

// release drops what the last event needed. There are many idle watches.
func (r *EventReader) release() {
	if r.encoding == Protobuf {
		r.proto.drop()
	} else if !r.json.drop() {
		return // it contains much of the next events
	}
	if r.Release != nil && r.held > 0 {
		r.Release(r.held)
	}
	r.held = 0
}

// Next returns the next event, or io.EOF at the end of the watch. The event may be kept.
func (r *EventReader) Next() (*Event, error) {
	r.release()
	raw, err := r.frame()
	if err != nil {
		return nil, err // io.EOF as it is
	}
	event, err := ParseEvent(append([]byte(nil), raw...), r.encoding)
	if err != nil {
		return nil, err
	}
	return event, nil
}

func (r *EventReader) frame() ([]byte, error) {
	if r.encoding == Protobuf {
		return r.proto.next()
	}
	return r.json.value()
}

// ParseEvent reads one event, without its frame. The event keeps raw.
func ParseEvent(raw []byte, encoding Encoding) (*Event, error) {
	event := &Event{raw: raw, encoding: encoding}
	parse := event.parseJSON
	if encoding == Protobuf {
		parse = event.parseProto
	}
	if err := parse(); err != nil {
		return nil, fmt.Errorf("reading a watch event: %w", err)
	}
	switch event.Type {
	case Added, Modified, Deleted, Error:
	case Bookmark:
		event.InitialEventsEnd = event.Object.Annotation(InitialEventsEnd) == "true"
	default:
		return nil, fmt.Errorf("reading a watch event: the type %.20q is unknown", event.Type)
	}
	if event.Type != Error && event.Object.ResourceVersion == "" {
		return nil, fmt.Errorf("reading a watch event: the object of a %s event has no resourceVersion", event.Type)
	}
	return event, nil
}
