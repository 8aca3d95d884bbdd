package splice

import (
	"errors"
	"fmt"

	"github.com/cellplane/cellplane/internal/objbytes"
)

var (
	errProto    = fmt.Errorf("%w: invalid protobuf", objbytes.ErrMalformed)
	errNotProto = fmt.Errorf("%w: not a Kubernetes object in protobuf", objbytes.ErrMalformed)
)

// span is a range of bytes.
type span = objbytes.Span

// protoField is a field of a message, with its place.
type protoField struct {
	objbytes.Field
	// whole is the range of the field with its tag, value that of the content, and length that of the encoded length, if there is one.
	whole, value, length span
}

// protoFieldAt reads the field of b[:end] that begins at i.
func protoFieldAt(b []byte, i, end int) (f protoField, err error) {
	if f.Field, _, err = objbytes.NextField(b[i:end]); err != nil {
		return f, err
	}
	f.whole = span{Start: i, End: i + len(f.Whole)}
	f.value = span{Start: f.whole.End - len(f.Value), End: f.whole.End}
	f.length = span{Start: i + f.TagSize, End: f.value.Start}
	return f, nil
}

// eachField calls visit for the fields of the message in a range of b, until visit returns ErrStop.
func eachField(b []byte, message span, visit func(protoField) error) error {
	for i := message.Start; i < message.End; {
		f, err := protoFieldAt(b, i, message.End)
		if err != nil {
			return err
		}
		if err := visit(f); err != nil {
			if errors.Is(err, objbytes.ErrStop) {
				return nil
			}
			return err
		}
		i = f.whole.End
	}
	return nil
}

// appendProtoKey appends the key of an encoded object to dst.
func appendProtoKey(dst, object []byte) ([]byte, error) {
	metadata, err := objbytes.ProtobufMetadata(object)
	if err != nil {
		return dst, err
	}
	var namespace, name []byte
	for rest := metadata.Value; len(rest) > 0 && namespace == nil; { // fields are written in the order of their numbers
		f, after, err := objbytes.NextField(rest)
		if err != nil {
			return dst, err
		}
		rest = after
		switch {
		case f.IsBytes(objbytes.MetaName):
			name = f.Value
		case f.IsBytes(objbytes.MetaNamespace):
			namespace = f.Value
		}
	}
	return appendKey(dst, namespace, name)
}

// parseProtoMetadata reads the metadata in a range of b. It also returns the range of the field of the resourceVersion, which is empty
// if there is none.
func parseProtoMetadata(b []byte, metadata span) (Object, span, error) {
	var m objbytes.Metadata
	if err := m.ReadProtobuf(metadata.Of(b)); err != nil {
		return Object{}, span{}, err
	}
	if m.VersionAt == (span{}) {
		return objectOf(&m), span{}, nil
	}
	return objectOf(&m), span{Start: metadata.Start + m.VersionAt.Start, End: metadata.Start + m.VersionAt.End}, nil
}
