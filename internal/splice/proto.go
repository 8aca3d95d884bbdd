package splice

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// protoPrefix begins every object Kubernetes encodes as protobuf. A runtime.Unknown follows, with the object inside.
var protoPrefix = []byte("k8s\x00")

// Field numbers of the messages looked at. They are part of the Kubernetes API.
const (
	unknownTypeMeta        protowire.Number = 1
	unknownRaw             protowire.Number = 2
	unknownContentEncoding protowire.Number = 3
	unknownContentType     protowire.Number = 4

	typeMetaAPIVersion protowire.Number = 1
	typeMetaKind       protowire.Number = 2

	// objectMetadata is the metadata of every object and every list.
	objectMetadata protowire.Number = 1
	listItems      protowire.Number = 2

	listMetaVersion   protowire.Number = 2
	listMetaContinue  protowire.Number = 3
	listMetaRemaining protowire.Number = 4

	objectMetaName        protowire.Number = 1
	objectMetaNamespace   protowire.Number = 3
	objectMetaUID         protowire.Number = 5
	objectMetaVersion     protowire.Number = 6
	objectMetaLabels      protowire.Number = 11
	objectMetaAnnotations protowire.Number = 12

	watchEventType   protowire.Number = 1
	watchEventObject protowire.Number = 2
	rawExtensionRaw  protowire.Number = 1

	statusCode   protowire.Number = 6
	statusReason protowire.Number = 4

	deleteOptionsPreconditions protowire.Number = 2
	preconditionsVersion       protowire.Number = 2
	evictionDeleteOptions      protowire.Number = 2
)

var (
	errProto       = errors.New("malformed protobuf")
	errProtoPrefix = errors.New("not a Kubernetes object in protobuf")
)

// protoField is a field of a message.
type protoField struct {
	number protowire.Number
	kind   protowire.Type
	// whole is the range of the field with its tag, value that of the content, and length, if it has one, that of its length.
	whole, value, length span
	// varint is the value of a field of that type.
	varint uint64
}

func (f protoField) isBytes(number protowire.Number) bool {
	return f.number == number && f.kind == protowire.BytesType
}

// protoFieldAt reads the field of b[:end] that begins at i.
func protoFieldAt(b []byte, i, end int) (protoField, error) {
	number, kind, n := protowire.ConsumeTag(b[i:end])
	if n < 0 {
		return protoField{}, errProto
	}
	f := protoField{number: number, kind: kind}
	at := i + n
	switch kind {
	case protowire.BytesType:
		content, n := protowire.ConsumeBytes(b[at:end])
		if n < 0 {
			return f, errProto
		}
		f.value = span{at + n - len(content), at + n}
		f.length = span{at, f.value.start}
	case protowire.VarintType:
		v, n := protowire.ConsumeVarint(b[at:end])
		if n < 0 {
			return f, errProto
		}
		f.varint, f.value = v, span{at, at + n}
	default:
		n := protowire.ConsumeFieldValue(number, kind, b[at:end])
		if n < 0 {
			return f, errProto
		}
		f.value = span{at, at + n}
	}
	f.whole = span{i, f.value.end}
	return f, nil
}

// eachField calls visit for the fields of the message in a range of b, until visit returns errStop.
func eachField(b []byte, message span, visit func(protoField) error) error {
	for i := message.start; i < message.end; {
		f, err := protoFieldAt(b, i, message.end)
		if err != nil {
			return err
		}
		if err := visit(f); err != nil {
			if errors.Is(err, errStop) {
				return nil
			}
			return err
		}
		i = f.whole.end
	}
	return nil
}

// protoObject is an object in its envelope.
type protoObject struct {
	typeMeta span
	raw      span
	// rawField is the whole field of raw.
	rawField span
}

// openProto reads the envelope in a range of b.
func openProto(b []byte, at span) (protoObject, error) {
	var o protoObject
	if !bytes.HasPrefix(at.of(b), protoPrefix) {
		return o, errProtoPrefix
	}
	err := eachField(b, span{at.start + len(protoPrefix), at.end}, func(f protoField) error {
		switch {
		case f.isBytes(unknownTypeMeta):
			o.typeMeta = f.value
		case f.isBytes(unknownRaw):
			o.raw, o.rawField = f.value, f.whole
		case f.isBytes(unknownContentEncoding) && f.value.start != f.value.end:
			return errors.New("the object's content is encoded once more")
		case f.isBytes(unknownContentType) && f.value.start != f.value.end && string(f.value.of(b)) != ProtobufContentType:
			return fmt.Errorf("the object inside is of content type %.40q", f.value.of(b))
		}
		return nil
	})
	return o, err
}

// protoBytesField returns the range of a message's field; ok is false if there is none.
func protoBytesField(b []byte, message span, number protowire.Number) (found span, ok bool, err error) {
	err = eachField(b, message, func(f protoField) error {
		if f.isBytes(number) {
			found, ok = f.value, true
			return errStop
		}
		return nil
	})
	return found, ok, err
}

// protoEntry returns the key and value of a map's entry.
func protoEntry(b []byte) (key, value []byte) {
	// An entry that cannot be read matches nothing.
	_ = eachField(b, span{0, len(b)}, func(f protoField) error {
		switch {
		case f.isBytes(1):
			key = f.value.of(b)
		case f.isBytes(2):
			value = f.value.of(b)
		}
		return nil
	})
	return key, value
}

// appendProtoKey appends the key of an encoded object to dst.
func appendProtoKey(dst, object []byte) ([]byte, error) {
	metadata, ok, err := protoBytesField(object, span{0, len(object)}, objectMetadata)
	if err != nil {
		return dst, err
	}
	if !ok {
		return dst, errNoMetadata
	}
	var namespace, name []byte
	err = eachField(object, metadata, func(f protoField) error {
		switch {
		case f.isBytes(objectMetaName):
			name = f.value.of(object)
		case f.isBytes(objectMetaNamespace):
			namespace = f.value.of(object)
			return errStop // fields are written in the order of their numbers
		}
		return nil
	})
	if err != nil {
		return dst, err
	}
	return appendKey(dst, namespace, name)
}

// parseProtoMetadata reads an ObjectMeta. It also returns the range of the field of the resourceVersion, which is empty if there is
// none.
func parseProtoMetadata(b []byte, metadata span) (object Object, version span, err error) {
	err = eachField(b, metadata, func(f protoField) error {
		if f.kind != protowire.BytesType {
			return nil
		}
		switch f.number {
		case objectMetaName:
			object.Name = string(f.value.of(b))
		case objectMetaNamespace:
			object.Namespace = string(f.value.of(b))
		case objectMetaUID:
			object.UID = string(f.value.of(b))
		case objectMetaVersion:
			object.ResourceVersion, version = string(f.value.of(b)), f.whole
		case objectMetaLabels:
			object.labels.proto = append(object.labels.proto, f.value.of(b))
		case objectMetaAnnotations:
			object.annotations.proto = append(object.annotations.proto, f.value.of(b))
		}
		return nil
	})
	return object, version, err
}

func appendProtoBytes(dst []byte, number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), content)
}

func appendProtoString(dst []byte, number protowire.Number, content string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, number, protowire.BytesType), content)
}

// sizeProtoBytes returns the size of a field with content of a size.
func sizeProtoBytes(number protowire.Number, size int) int {
	return protowire.SizeTag(number) + protowire.SizeBytes(size)
}
