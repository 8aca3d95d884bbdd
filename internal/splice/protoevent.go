package splice

import (
	"encoding/binary"
	"errors"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// frameReader reads messages behind their lengths.
type frameReader struct {
	r   io.Reader
	max int
	buf []byte
}

func newFrameReader(r io.Reader, maxFrame int) *frameReader {
	if maxFrame <= 0 {
		maxFrame = defaultMaxValue
	}
	return &frameReader{r: r, max: maxFrame}
}

// next returns the next message. It is good until the next call.
func (f *frameReader) next() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return nil, err // io.EOF between frames, io.ErrUnexpectedEOF inside of one
	}
	size := binary.BigEndian.Uint32(head[:])
	if uint64(size) > uint64(f.max) {
		return nil, ErrTooLarge
	}
	f.buf = f.buf[:0]
	for len(f.buf) < int(size) { // a length alone must not make us take memory
		at := len(f.buf)
		f.buf = append(f.buf, make([]byte, min(int(size)-at, max(at, firstBuffer)))...)
		if _, err := io.ReadFull(f.r, f.buf[at:]); err != nil {
			return nil, unexpectedEOF(err)
		}
	}
	return f.buf, nil
}

// protoPlace is where a resourceVersion is in an event: the fields around it from the outermost to the innermost, and its own.
type protoPlace struct {
	around  []protoLevel
	version span // the whole field; an empty range where it would be inserted
}

// protoLevel is a field with a length that changes when something inside of it does.
type protoLevel struct {
	// length is the range of the encoded length.
	length span
	end    int
}

func levelOf(f protoField) protoLevel {
	return protoLevel{length: f.length, end: f.value.end}
}

func (e *Event) parseProto() error {
	var object, content protoField
	err := eachField(e.raw, span{0, len(e.raw)}, func(f protoField) error {
		switch {
		case f.isBytes(watchEventType):
			e.Type = EventType(f.value.of(e.raw))
		case f.isBytes(watchEventObject):
			object = f
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = eachField(e.raw, object.value, func(f protoField) error {
		if f.isBytes(rawExtensionRaw) {
			content = f
		}
		return nil
	})
	if err != nil {
		return err
	}
	inner, err := openProto(e.raw, content.value)
	if err != nil {
		return err
	}
	if e.Type == Error {
		return e.parseProtoStatus(inner.raw)
	}
	raw, err := protoFieldAt(e.raw, inner.rawField.start, inner.rawField.end)
	if err != nil {
		return errors.New("the event's object is empty")
	}
	var metadata protoField
	err = eachField(e.raw, inner.raw, func(f protoField) error {
		if !f.isBytes(objectMetadata) {
			return nil
		}
		metadata = f
		return errStop
	})
	if err != nil {
		return err
	}
	if metadata.number == 0 {
		return errNoMetadata
	}
	parsed, version, err := parseProtoMetadata(e.raw, metadata.value)
	if err != nil {
		return err
	}
	if version == (span{}) {
		version = span{metadata.value.end, metadata.value.end}
	}
	e.Object = parsed
	e.proto = protoPlace{around: []protoLevel{levelOf(object), levelOf(content), levelOf(raw), levelOf(metadata)}, version: version}
	return nil
}

func (e *Event) parseProtoStatus(status span) error {
	return eachField(e.raw, status, func(f protoField) error {
		switch {
		case f.number == statusCode && f.kind == protowire.VarintType:
			e.Code = int(int32(f.varint))
		case f.isBytes(statusReason):
			e.Reason = string(f.value.of(e.raw))
		}
		return nil
	})
}

// appendProto writes the event in one pass. The lengths of the fields around the resourceVersion change with it, and as they may then
// need more or fewer bytes themselves, they are computed from the innermost outwards.
func (e *Event) appendProto(dst []byte, version string) []byte {
	place := e.proto
	if len(place.around) == 0 {
		return append(binary.BigEndian.AppendUint32(dst, uint32(len(e.raw))), e.raw...)
	}
	grown := sizeProtoBytes(objectMetaVersion, len(version)) - (place.version.end - place.version.start)
	var sizes [8]int
	for i := len(place.around) - 1; i >= 0; i-- {
		level := place.around[i]
		sizes[i] = level.end - level.length.end + grown
		grown += protowire.SizeVarint(uint64(sizes[i])) - (level.length.end - level.length.start)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(e.raw)+grown))
	at := 0
	for i, level := range place.around {
		dst = append(dst, e.raw[at:level.length.start]...)
		dst = protowire.AppendVarint(dst, uint64(sizes[i]))
		at = level.length.end
	}
	dst = append(dst, e.raw[at:place.version.start]...)
	dst = appendProtoString(dst, objectMetaVersion, version)
	return append(dst, e.raw[place.version.end:]...)
}
