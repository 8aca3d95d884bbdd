package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

var errMalformed = errors.New("malformed protobuf")

// field is a field of a message.
type field struct {
	number protowire.Number
	kind   protowire.Type
	// value is the content of a field with a length.
	value []byte
	// varint is the value of a field of that type.
	varint uint64
	// whole is the field with its tag.
	whole []byte
}

// next cuts the first field off a message.
func next(message []byte) (f field, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(message)
	if n < 0 {
		return f, nil, errMalformed
	}
	f.number, f.kind = number, kind
	size := 0
	switch kind {
	case protowire.BytesType:
		f.value, size = protowire.ConsumeBytes(message[n:])
	case protowire.VarintType:
		f.varint, size = protowire.ConsumeVarint(message[n:])
	case protowire.Fixed32Type, protowire.Fixed64Type:
		size = protowire.ConsumeFieldValue(number, kind, message[n:])
	default:
		// Kubernetes has no groups, and skipping them would recurse.
		return f, nil, fmt.Errorf("%w: a group", errMalformed)
	}
	if size < 0 {
		return f, nil, errMalformed
	}
	f.whole = message[:n+size]
	return f, message[n+size:], nil
}

// entry returns the key and value of an entry of a map.
func entry(message []byte) (key, value []byte, err error) {
	for len(message) > 0 {
		var f field
		if f, message, err = next(message); err != nil {
			return nil, nil, err
		}
		switch {
		case f.kind != protowire.BytesType:
		case f.number == 1:
			key = f.value
		case f.number == 2:
			value = f.value
		}
	}
	return key, value, nil
}

func appendEntry(dst []byte, number protowire.Number, key, value string) []byte {
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(2+protowire.SizeBytes(len(key))+protowire.SizeBytes(len(value))))
	dst = protowire.AppendString(protowire.AppendTag(dst, 1, protowire.BytesType), key)
	return protowire.AppendString(protowire.AppendTag(dst, 2, protowire.BytesType), value)
}

// entrySize is the size of what appendEntry appends, for numbers below sixteen.
func entrySize(key, value string) int {
	return 1 + protowire.SizeBytes(2+protowire.SizeBytes(len(key))+protowire.SizeBytes(len(value)))
}
