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

// Size returns the size of the event as received, which is about what Append appends.
func (e *Event) Size() int { return len(e.raw) }

// EventReader reads the events of a watch.
type EventReader struct {
	encoding Encoding
	json     *jsonStream
	proto    *frameReader
}

// NewEventReader returns a reader of the events in r. No event may be larger than maxEvent bytes; 0 means 32 MiB.
func NewEventReader(r io.Reader, encoding Encoding, maxEvent int) *EventReader {
	reader := &EventReader{encoding: encoding}
	if encoding == Protobuf {
		reader.proto = newFrameReader(r, maxEvent)
	} else {
		reader.json = newJSONStream(r, maxEvent)
	}
	return reader
}

// Next returns the next event, or io.EOF at the end of the watch. The event may be kept.
func (r *EventReader) Next() (*Event, error) {
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
