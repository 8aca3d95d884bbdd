package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxFrame bounds a watch event. API servers do not store objects of more than a few megabytes.
const maxFrame = 16 << 20

// The field numbers of what is read here.
const (
	eventType, eventObject          = 1, 2
	extensionRaw                    = 1
	unknownRaw                      = 2
	objectMetadata                  = 1
	metaVersion, metaAnnotations    = 6, 12
	entryKey, entryValue            = 1, 2
	listMetadata, listItems         = 1, 2
	listMetaVersion, listMetaMarker = 2, 3
)

// envelope begins everything that API servers encode as protobuf.
var envelope = []byte("k8s\x00")

var errMalformed = errors.New("the member sent something malformed")

// frames reads the events of a watch, each behind its length in four bytes.
type frames struct {
	reader io.Reader
	buffer []byte
}

// next returns the next frame, which is valid until the one after it. The error is io.EOF at the end of the watch.
func (f *frames) next() ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(f.reader, header[:]); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(header[:]))
	if size > maxFrame {
		return nil, fmt.Errorf("%w: an event of %d bytes", errMalformed, size)
	}
	if cap(f.buffer) < size {
		f.buffer = make([]byte, size, size+size/2)
	}
	f.buffer = f.buffer[:size]
	if _, err := io.ReadFull(f.reader, f.buffer); err != nil {
		return nil, err
	}
	return f.buffer, nil
}

// event is a watch event.
type event struct {
	kind []byte // ADDED and so on
	raw  []byte // the encoded object, without an envelope
}

func parseEvent(frame []byte) (event, error) {
	var e event
	err := eachBytes(frame, func(number protowire.Number, value []byte) error {
		switch number {
		case eventType:
			e.kind = value
		case eventObject:
			extension, err := field(value, extensionRaw)
			if err != nil {
				return err
			}
			e.raw, err = unwrap(extension)
			return err
		}
		return nil
	})
	if err == nil && len(e.kind) == 0 {
		err = fmt.Errorf("%w: an event without a type", errMalformed)
	}
	return e, err
}

// unwrap takes an object out of its envelope.
func unwrap(encoded []byte) ([]byte, error) {
	content, ok := bytes.CutPrefix(encoded, envelope)
	if !ok {
		return nil, fmt.Errorf("%w: no protobuf", errMalformed)
	}
	return field(content, unknownRaw)
}

// position returns the resourceVersion of an object, and whether it is the bookmark that ends the initial events.
func position(raw []byte) (version string, end bool, err error) {
	metadata, err := field(raw, objectMetadata)
	if err != nil {
		return "", false, err
	}
	err = eachBytes(metadata, func(number protowire.Number, value []byte) error {
		switch number {
		case metaVersion:
			version = string(value)
		case metaAnnotations:
			var key, content []byte
			if err := eachBytes(value, func(number protowire.Number, part []byte) error {
				switch number {
				case entryKey:
					key = part
				case entryValue:
					content = part
				}
				return nil
			}); err != nil {
				return err
			}
			end = end || (string(key) == "k8s.io/initial-events-end" && string(content) == "true")
		}
		return nil
	})
	return version, end, err
}

// page is a list, or a part of one.
type page struct {
	version, marker string
	items           [][]byte
}

func parsePage(encoded []byte) (page, error) {
	var p page
	raw, err := unwrap(encoded)
	if err != nil {
		return p, err
	}
	err = eachBytes(raw, func(number protowire.Number, value []byte) error {
		switch number {
		case listMetadata:
			return eachBytes(value, func(number protowire.Number, part []byte) error {
				switch number {
				case listMetaVersion:
					p.version = string(part)
				case listMetaMarker:
					p.marker = string(part)
				}
				return nil
			})
		case listItems:
			p.items = append(p.items, value)
		}
		return nil
	})
	if err == nil && p.version == "" {
		err = fmt.Errorf("%w: a list without a resourceVersion", errMalformed)
	}
	return p, err
}

// field returns the last value of a field, nil if it is not there.
func field(message []byte, wanted protowire.Number) ([]byte, error) {
	var found []byte
	err := eachBytes(message, func(number protowire.Number, value []byte) error {
		if number == wanted {
			found = value
		}
		return nil
	})
	return found, err
}

// eachBytes visits the fields of a message that are strings, bytes or messages.
func eachBytes(message []byte, visit func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		number, wire, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
		}
		message = message[n:]
		if wire != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, wire, message); n < 0 {
				return fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
		}
		if err := visit(number, value); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}
