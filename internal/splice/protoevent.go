package splice

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// frameReader reads messages that are preceded by their lengths.
type frameReader struct {
	r   io.Reader
	max int
	buf []byte
	// hold, if set, is called before the buffer grows.
	hold func(bytes int) error
}

func newFrameReader(r io.Reader, maxFrame int) *frameReader {
	if maxFrame <= 0 {
		maxFrame = defaultMaxValue
	}
	return &frameReader{r: r, max: maxFrame}
}

// next returns the next message, which is valid until the next call.
func (f *frameReader) next() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return nil, err // io.EOF between frames, io.ErrUnexpectedEOF within one
	}
	size := binary.BigEndian.Uint32(head[:])
	if uint64(size) > uint64(f.max) {
		return nil, ErrTooLarge
	}
	var err error
	f.buf, err = readInto(f.buf, f.r, int(size), f.hold)
	return f.buf, err
}

// readInto reads a number of bytes into a buffer, in place of its content. The buffer grows only as bytes arrive: a length alone must not
// allocate memory.
func readInto(buf []byte, r io.Reader, size int, hold func(int) error) ([]byte, error) {
	buf = buf[:0]
	for len(buf) < size {
		at := len(buf)
		next := at + min(size-at, max(at, firstBuffer))
		if next > cap(buf) {
			if err := held(hold, next-max(cap(buf), firstBuffer)); err != nil {
				return buf, err
			}
			buf = slices.Grow(buf, next-at)
		}
		buf = buf[:next]
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return buf, unexpectedEOF(err)
		}
	}
	return buf, nil
}

// drop gives a large buffer up.
func (f *frameReader) drop() {
	if cap(f.buf) > keptBuffer {
		f.buf = nil
	}
}

// protoPlace is the place of a resourceVersion in an event: the enclosing fields, outermost first, and its own.
type protoPlace struct {
	around  []protoLevel
	version span // the whole field, or an empty range at which to insert it
}

// protoLevel is an enclosing field, whose length changes with its content.
type protoLevel struct {
	// length is the range of the encoded length.
	length span
	end    int
}

func levelOf(f *protoField) protoLevel {
	return protoLevel{length: f.length, end: f.value.End}
}

func (e *Event) parseProto() error {
	var object, content protoField
	err := eachField(e.raw, span{Start: 0, End: len(e.raw)}, func(f protoField) error {
		switch {
		case f.IsBytes(objbytes.WatchEventType):
			e.Type = EventType(f.Value)
		case f.IsBytes(objbytes.WatchEventObject):
			object = f
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = eachField(e.raw, object.value, func(f protoField) error {
		if f.IsBytes(objbytes.RawExtensionRaw) {
			content = f
		}
		return nil
	})
	if err != nil {
		return err
	}
	inner, err := objbytes.OpenEnvelope(content.Value)
	if err != nil {
		return err
	}
	within := func(s span) span { return span{Start: content.value.Start + s.Start, End: content.value.Start + s.End} }
	if e.Type == Error {
		return e.parseProtoStatus(inner.Raw.Of(content.Value))
	}
	if inner.RawField == (span{}) {
		return errors.New("the event's object is empty")
	}
	at := within(inner.RawField)
	raw, err := protoFieldAt(e.raw, at.Start, at.End)
	if err != nil {
		return err
	}
	var metadata protoField
	err = eachField(e.raw, raw.value, func(f protoField) error {
		if !f.IsBytes(objbytes.ObjectMetadata) {
			return nil
		}
		if metadata.Number != 0 {
			return fmt.Errorf("%w: metadata occurs twice", errProto)
		}
		metadata = f
		return nil
	})
	if err != nil {
		return err
	}
	if metadata.Number == 0 {
		return objbytes.ErrNoMetadata
	}
	parsed, version, err := parseProtoMetadata(e.raw, metadata.value)
	if err != nil {
		return err
	}
	if version == (span{}) {
		version = span{Start: metadata.value.End, End: metadata.value.End}
	}
	e.Object = parsed
	e.proto = protoPlace{around: []protoLevel{levelOf(&object), levelOf(&content), levelOf(&raw), levelOf(&metadata)}, version: version}
	return nil
}

func (e *Event) parseProtoStatus(status []byte) error {
	return objbytes.EachField(status, func(f objbytes.Field) error {
		switch {
		case f.Number == objbytes.StatusCode && f.Type == protowire.VarintType:
			e.Code = int(int32(f.Varint))
		case f.IsBytes(objbytes.StatusReason):
			e.Reason = string(f.Value)
		}
		return nil
	})
}

// appendProto writes the event in one pass. The lengths of the enclosing fields change with the resourceVersion. As these may then need
// more or fewer bytes themselves, they are computed from the innermost outwards.
func (e *Event) appendProto(dst []byte, version string) []byte {
	place := e.proto
	if len(place.around) == 0 {
		return append(binary.BigEndian.AppendUint32(dst, uint32(len(e.raw))), e.raw...)
	}
	grown := objbytes.SizeBytes(objbytes.MetaVersion, len(version)) - (place.version.End - place.version.Start)
	var sizes [8]int
	for i := len(place.around) - 1; i >= 0; i-- {
		level := place.around[i]
		sizes[i] = level.end - level.length.End + grown
		grown += protowire.SizeVarint(uint64(sizes[i])) - (level.length.End - level.length.Start)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(e.raw)+grown))
	at := 0
	for i, level := range place.around {
		dst = append(dst, e.raw[at:level.length.Start]...)
		dst = protowire.AppendVarint(dst, uint64(sizes[i]))
		at = level.length.End
	}
	dst = append(dst, e.raw[at:place.version.Start]...)
	dst = objbytes.AppendString(dst, objbytes.MetaVersion, version)
	return append(dst, e.raw[place.version.End:]...)
}

// protoBookmark returns a bookmark. Its object has nothing but metadata, which is the first field of every object.
func (e *Event) protoBookmark() ([]byte, error) {
	object, err := objbytes.LastBytes(e.raw, objbytes.WatchEventObject)
	if err != nil {
		return nil, err
	}
	content, err := objbytes.LastBytes(object, objbytes.RawExtensionRaw)
	if err != nil || !bytes.HasPrefix(content, []byte(objbytes.ProtobufPrefix)) {
		return nil, err
	}
	typeMeta, err := objbytes.LastBytes(content[len(objbytes.ProtobufPrefix):], objbytes.UnknownTypeMeta)
	if err != nil {
		return nil, err
	}
	metadata := objbytes.AppendString(nil, objbytes.MetaVersion, "1")
	bookmark := append([]byte(nil), objbytes.ProtobufPrefix...)
	bookmark = objbytes.AppendBytes(bookmark, objbytes.UnknownTypeMeta, typeMeta)
	bookmark = objbytes.AppendBytes(bookmark, objbytes.UnknownRaw, objbytes.AppendBytes(nil, objbytes.ObjectMetadata, metadata))
	bookmark = objbytes.AppendString(bookmark, objbytes.UnknownContentEncoding, "")
	bookmark = objbytes.AppendString(bookmark, objbytes.UnknownContentType, "")
	event := objbytes.AppendString(nil, objbytes.WatchEventType, string(Bookmark))
	return objbytes.AppendBytes(event, objbytes.WatchEventObject, objbytes.AppendBytes(nil, objbytes.RawExtensionRaw, bookmark)), nil
}
