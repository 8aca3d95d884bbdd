package ingest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// maxFrame bounds a watch event. API servers store objects of a few megabytes at most.
const maxFrame = 16 << 20

var errMalformed = errors.New("the member sent a malformed response")

// frames reads the events of a watch. Four bytes before each are its length.
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

// event returns the next event.
func (f *frames) event() (event, error) {
	frame, err := f.next()
	if err != nil {
		return event{}, err
	}
	return parseEvent(frame)
}

// event is a watch event.
type event struct {
	kind []byte // ADDED and so on
	raw  []byte // the encoded object, without an envelope
}

func parseEvent(frame []byte) (e event, err error) {
	kind, err := objbytes.LastBytes(frame, objbytes.WatchEventType)
	if err != nil {
		return e, malformed(err)
	}
	object, err := objbytes.LastBytes(frame, objbytes.WatchEventObject)
	if err != nil {
		return e, malformed(err)
	}
	encoded, err := objbytes.LastBytes(object, objbytes.RawExtensionRaw)
	if err != nil {
		return e, malformed(err)
	}
	if len(kind) == 0 {
		return e, fmt.Errorf("%w: an event without a type", errMalformed)
	}
	raw, err := unwrap(encoded)
	return event{kind, raw}, err
}

// unwrap takes an object out of its envelope.
func unwrap(encoded []byte) ([]byte, error) {
	envelope, err := objbytes.OpenEnvelope(encoded)
	if err != nil {
		return nil, malformed(err)
	}
	return envelope.Raw.Of(encoded), nil
}

func malformed(err error) error { return fmt.Errorf("%w: %w", errMalformed, err) }

// position returns the resourceVersion of an object, and whether it is the bookmark that ends the initial events.
func position(raw []byte) (version string, end bool, err error) {
	metadata, err := objbytes.ProtobufMetadata(raw)
	if err != nil {
		return "", false, malformed(err)
	}
	err = objbytes.EachField(metadata.Value, func(f objbytes.Field) error {
		switch {
		case f.IsBytes(objbytes.MetaVersion):
			version = string(f.Value)
		case f.IsBytes(objbytes.MetaAnnotations):
			key, value, err := objbytes.MapEntry(f.Value)
			if err != nil {
				return err
			}
			end = end || (string(key) == metav1.InitialEventsAnnotationKey && string(value) == "true")
		}
		return nil
	})
	if err != nil {
		return "", false, malformed(err)
	}
	return version, end, nil
}

// page is a list, or a part of one.
type page struct {
	version, marker string
	items           [][]byte
}

func parsePage(encoded []byte) (p page, err error) {
	raw, err := unwrap(encoded)
	if err != nil {
		return p, err
	}
	err = objbytes.EachField(raw, func(f objbytes.Field) error {
		switch {
		case f.IsBytes(objbytes.ObjectMetadata):
			return objbytes.EachField(f.Value, func(f objbytes.Field) error {
				switch {
				case f.IsBytes(objbytes.ListMetaVersion):
					p.version = string(f.Value)
				case f.IsBytes(objbytes.ListMetaContinue):
					p.marker = string(f.Value)
				}
				return nil
			})
		case f.IsBytes(objbytes.ListItems):
			p.items = append(p.items, f.Value)
		}
		return nil
	})
	switch {
	case err != nil:
		return p, malformed(err)
	case p.version == "":
		return p, fmt.Errorf("%w: a list without a resourceVersion", errMalformed)
	}
	return p, nil
}
