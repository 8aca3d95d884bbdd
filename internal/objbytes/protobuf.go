package objbytes

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// ProtobufPrefix starts every object that Kubernetes encodes as protobuf. A runtime.Unknown follows, which holds the object.
const ProtobufPrefix = "k8s\x00"

// ProtobufMediaType is the media type of objects in protobuf.
const ProtobufMediaType = "application/vnd.kubernetes.protobuf"

// Field numbers of Kubernetes messages. They are part of the Kubernetes API.
const (
	UnknownTypeMeta        protowire.Number = 1
	UnknownRaw             protowire.Number = 2
	UnknownContentEncoding protowire.Number = 3
	UnknownContentType     protowire.Number = 4

	TypeMetaAPIVersion protowire.Number = 1
	TypeMetaKind       protowire.Number = 2

	// ObjectMetadata is the metadata of every object and every list.
	ObjectMetadata protowire.Number = 1
	ListItems      protowire.Number = 2

	ListMetaVersion   protowire.Number = 2
	ListMetaContinue  protowire.Number = 3
	ListMetaRemaining protowire.Number = 4

	MetaName              protowire.Number = 1
	MetaGenerateName      protowire.Number = 2
	MetaNamespace         protowire.Number = 3
	MetaUID               protowire.Number = 5
	MetaVersion           protowire.Number = 6
	MetaCreationTimestamp protowire.Number = 8
	MetaDeletionTimestamp protowire.Number = 9
	MetaLabels            protowire.Number = 11
	MetaAnnotations       protowire.Number = 12
	MetaOwnerReferences   protowire.Number = 13
	MetaManagedFields     protowire.Number = 17

	TimeSeconds protowire.Number = 1

	OwnerUID        protowire.Number = 4
	OwnerController protowire.Number = 6

	WatchEventType   protowire.Number = 1
	WatchEventObject protowire.Number = 2
	RawExtensionRaw  protowire.Number = 1

	StatusReason protowire.Number = 4
	StatusCode   protowire.Number = 6

	DeleteOptionsPreconditions protowire.Number = 2
	PreconditionsVersion       protowire.Number = 2
	EvictionDeleteOptions      protowire.Number = 2

	mapKey   protowire.Number = 1
	mapValue protowire.Number = 2
)

var (
	// ErrMalformed reports input that is not what it should be, or has more than one reading.
	ErrMalformed = errors.New("malformed object")
	// ErrNoMetadata reports an object without metadata.
	ErrNoMetadata = errors.New("the object has no metadata")
	// ErrStop ends a walk early without failing it.
	ErrStop = errors.New("stop")

	errProtobuf = fmt.Errorf("%w: invalid protobuf", ErrMalformed)
	errPrefix   = fmt.Errorf("%w: not a Kubernetes object in protobuf", ErrMalformed)
)

// Field is a field of a message.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	// Value is the content of a field of type bytes.
	Value []byte
	// Varint is the value of a field of type varint.
	Varint uint64
	// Whole is the field with its tag, which has TagSize bytes.
	Whole   []byte
	TagSize int
}

// IsBytes reports whether the field has a number and is of type bytes.
func (f *Field) IsBytes(number protowire.Number) bool {
	return f.Number == number && f.Type == protowire.BytesType
}

// NextField returns the first field of a message and the rest of the message. Groups are refused: Kubernetes has none, and skipping
// them would recurse.
func NextField(message []byte) (f Field, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(message)
	if n < 0 {
		return f, nil, errProtobuf
	}
	f.Number, f.Type, f.TagSize = number, kind, n
	size := 0
	switch kind {
	case protowire.BytesType:
		f.Value, size = protowire.ConsumeBytes(message[n:])
	case protowire.VarintType:
		f.Varint, size = protowire.ConsumeVarint(message[n:])
	case protowire.Fixed32Type, protowire.Fixed64Type:
		size = protowire.ConsumeFieldValue(number, kind, message[n:])
	default:
		return f, nil, fmt.Errorf("%w: field %d is a group", errProtobuf, number)
	}
	if size < 0 {
		return f, nil, errProtobuf
	}
	f.Whole = message[:n+size]
	return f, message[n+size:], nil
}

// EachField calls visit for the fields of a message until it returns an error. ErrStop ends the walk without failing it.
func EachField(message []byte, visit func(Field) error) error {
	for len(message) > 0 {
		f, rest, err := NextField(message)
		if err != nil {
			return err
		}
		message = rest
		if err := visit(f); err != nil {
			if errors.Is(err, ErrStop) {
				return nil
			}
			return err
		}
	}
	return nil
}

// LastBytes returns the content of a field of type bytes, nil if there is none. If the field is repeated the last one counts, as it does
// for decoders.
func LastBytes(message []byte, number protowire.Number) (found []byte, err error) {
	for len(message) > 0 {
		f, rest, err := NextField(message)
		if err != nil {
			return nil, err
		}
		message = rest
		if f.IsBytes(number) {
			found = f.Value
		}
	}
	return found, nil
}

// MapEntry returns the key and value of an entry of a map of strings.
func MapEntry(message []byte) (key, value []byte, err error) {
	for len(message) > 0 {
		f, rest, err := NextField(message)
		if err != nil {
			return nil, nil, err
		}
		message = rest
		switch {
		case f.IsBytes(mapKey):
			key = f.Value
		case f.IsBytes(mapValue):
			value = f.Value
		}
	}
	return key, value, nil
}

// Envelope tells where the parts of an object in protobuf are.
type Envelope struct {
	// TypeMeta is the encoded apiVersion and kind.
	TypeMeta Span
	// Raw is the encoded object, and RawField the same with its tag and length.
	Raw, RawField Span
}

// OpenEnvelope reads the envelope of an object in protobuf. If a part is repeated the last one counts, as it does for decoders.
func OpenEnvelope(b []byte) (e Envelope, err error) {
	if !bytes.HasPrefix(b, []byte(ProtobufPrefix)) {
		return e, errPrefix
	}
	for at := len(ProtobufPrefix); at < len(b); {
		f, _, err := NextField(b[at:])
		if err != nil {
			return e, err
		}
		end := at + len(f.Whole)
		value := Span{end - len(f.Value), end}
		switch {
		case f.IsBytes(UnknownTypeMeta):
			e.TypeMeta = value
		case f.IsBytes(UnknownRaw):
			e.Raw, e.RawField = value, Span{at, end}
		case f.IsBytes(UnknownContentEncoding) && len(f.Value) > 0:
			return e, fmt.Errorf("%w: the object has the content encoding %.40q", ErrMalformed, f.Value)
		case f.IsBytes(UnknownContentType) && len(f.Value) > 0 && string(f.Value) != ProtobufMediaType:
			return e, fmt.Errorf("%w: the object has the content type %.40q", ErrMalformed, f.Value)
		}
		at = end
	}
	return e, nil
}

// AppendBytes appends a field of type bytes.
func AppendBytes(dst []byte, number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), content)
}

// AppendString appends a field of type string.
func AppendString(dst []byte, number protowire.Number, content string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, number, protowire.BytesType), content)
}

// AppendTypeMeta appends an envelope up to its TypeMeta, with the prefix.
func AppendTypeMeta(dst []byte, apiVersion, kind string) []byte {
	typeMeta := AppendString(AppendString(nil, TypeMetaAPIVersion, apiVersion), TypeMetaKind, kind)
	return AppendBytes(append(dst, ProtobufPrefix...), UnknownTypeMeta, typeMeta)
}

// SizeBytes returns the size of a field of type bytes with content of a size.
func SizeBytes(number protowire.Number, size int) int {
	return protowire.SizeTag(number) + protowire.SizeBytes(size)
}

// AppendMapEntry appends an entry of a map of strings.
func AppendMapEntry(dst []byte, number protowire.Number, key, value string) []byte {
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(entryContent(key, value)))
	return AppendString(AppendString(dst, mapKey, key), mapValue, value)
}

// SizeMapEntry returns the size of what AppendMapEntry appends.
func SizeMapEntry(number protowire.Number, key, value string) int {
	return SizeBytes(number, entryContent(key, value))
}

func entryContent(key, value string) int {
	return SizeBytes(mapKey, len(key)) + SizeBytes(mapValue, len(value))
}
