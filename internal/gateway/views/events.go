package views

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"strings"

	"github.com/cellplane/cellplane/internal/splice"
)

// eventWriter forwards a watch in whole events, however the writes are divided.
type eventWriter struct {
	http.ResponseWriter
	// change returns the frame to send in place of an event's frame; nil changes nothing.
	change func(frame []byte, encoding splice.Encoding) ([]byte, error)

	status  int
	pending []byte // the first part of an event
	out     []byte
}

// WriteHeader implements http.ResponseWriter.
func (e *eventWriter) WriteHeader(status int) {
	if e.status == 0 {
		e.status = status
	}
	e.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. Answers other than 200 are not watches and are forwarded unchanged.
func (e *eventWriter) Write(b []byte) (int, error) {
	if e.status == 0 {
		e.WriteHeader(http.StatusOK)
	}
	if e.status != http.StatusOK {
		return e.ResponseWriter.Write(b)
	}
	encoding := encodingOf(e.Header())
	e.pending, e.out = append(e.pending, b...), e.out[:0]
	rest := e.pending
	for {
		size := frameSize(rest, encoding)
		if size == 0 {
			break
		}
		frame := rest[:size]
		rest = rest[size:]
		if e.change != nil {
			changed, err := e.change(frame, encoding)
			if err != nil {
				return 0, err
			}
			frame = changed
		}
		e.out = append(e.out, frame...)
	}
	e.pending = append(e.pending[:0], rest...)
	if len(e.out) > 0 {
		if _, err := e.ResponseWriter.Write(e.out); err != nil {
			return 0, err
		}
	}
	if cap(e.out)+cap(e.pending) > maxKept {
		e.out, e.pending = nil, bytes.Clone(e.pending) // there may be many idle watches
	}
	return len(b), nil
}

// maxKept bounds the buffers that an idle watch keeps.
const maxKept = 32 << 10

// Unwrap serves http.ResponseController.
func (e *eventWriter) Unwrap() http.ResponseWriter { return e.ResponseWriter }

func encodingOf(header http.Header) splice.Encoding {
	if strings.HasPrefix(header.Get("Content-Type"), splice.ProtobufContentType) {
		return splice.Protobuf
	}
	return splice.JSON
}

// lengthSize is the size of the length prefix of an event in protobuf.
const lengthSize = 4

// frameSize returns the size of the first event in b with its frame, 0 if it is not complete.
func frameSize(b []byte, encoding splice.Encoding) int {
	if encoding == splice.JSON {
		return bytes.IndexByte(b, '\n') + 1
	}
	if len(b) < lengthSize {
		return 0
	}
	size := uint64(lengthSize) + uint64(binary.BigEndian.Uint32(b))
	if size > uint64(len(b)) {
		return 0
	}
	return int(size)
}

// unframed returns a copy of an event without its frame.
func unframed(frame []byte, encoding splice.Encoding) []byte {
	if encoding == splice.JSON {
		return bytes.Clone(bytes.TrimSuffix(frame, []byte("\n")))
	}
	return bytes.Clone(frame[lengthSize:])
}
