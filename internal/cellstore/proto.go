package cellstore

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var errProto = errors.New("malformed protobuf")

// Numbers of the fields looked at. They are part of the Kubernetes API.
const (
	unknownTypeMeta protowire.Number = 1
	unknownRaw      protowire.Number = 2

	typeMetaAPIVersion protowire.Number = 1
	typeMetaKind       protowire.Number = 2

	objectMetadata protowire.Number = 1

	metaName              protowire.Number = 1
	metaNamespace         protowire.Number = 3
	metaUID               protowire.Number = 5
	metaDeletionTimestamp protowire.Number = 9
	metaLabels            protowire.Number = 11
	metaAnnotations       protowire.Number = 12

	mapKey   protowire.Number = 1
	mapValue protowire.Number = 2
)

// field is a field of a message. Only those of bytes have content.
type field struct {
	number  protowire.Number
	whole   []byte
	content []byte
}

// cutMessage cuts a message into its fields.
func cutMessage(b []byte) ([]field, error) {
	var fields []field
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, errProto
		}
		f := field{number: number}
		if kind == protowire.BytesType {
			content, m := protowire.ConsumeBytes(b[n:])
			if m < 0 {
				return nil, errProto
			}
			f.content, n = content, n+m
		} else {
			m := protowire.ConsumeFieldValue(number, kind, b[n:])
			if m < 0 {
				return nil, errProto
			}
			n += m
		}
		f.whole, b = b[:n], b[n:]
		fields = append(fields, f)
	}
	return fields, nil
}

// last returns the content of a field; the last one counts if it is repeated.
func last(fields []field, number protowire.Number) []byte {
	for i := len(fields) - 1; i >= 0; i-- {
		if fields[i].number == number {
			return fields[i].content
		}
	}
	return nil
}

// cutProto returns the fields of the envelope, of the object in it, and of its metadata.
func cutProto(value []byte) (envelope, object, metadata []field, err error) {
	if envelope, err = cutMessage(value[len(protoPrefix):]); err != nil {
		return nil, nil, nil, err
	}
	if object, err = cutMessage(last(envelope, unknownRaw)); err != nil {
		return nil, nil, nil, err
	}
	metadata, err = cutMessage(last(object, objectMetadata))
	return envelope, object, metadata, err
}

func parseProto(value []byte) (*Object, error) {
	envelope, _, metadata, err := cutProto(value)
	if err != nil {
		return nil, err
	}
	typeMeta, err := cutMessage(last(envelope, unknownTypeMeta))
	if err != nil {
		return nil, err
	}
	object := &Object{
		GroupVersionKind: schema.FromAPIVersionAndKind(string(last(typeMeta, typeMetaAPIVersion)), string(last(typeMeta, typeMetaKind))),
		Name:             string(last(metadata, metaName)),
		Namespace:        string(last(metadata, metaNamespace)),
		UID:              string(last(metadata, metaUID)),
		Deleting:         last(metadata, metaDeletionTimestamp) != nil,
	}
	if object.Labels, err = texts(metadata, metaLabels); err != nil {
		return nil, err
	}
	object.Annotations, err = texts(metadata, metaAnnotations)
	return object, err
}

func texts(fields []field, number protowire.Number) (map[string]string, error) {
	var all map[string]string
	for _, f := range fields {
		if f.number != number {
			continue
		}
		key, value, err := textEntry(f.content)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = map[string]string{}
		}
		all[key] = value
	}
	return all, nil
}

func textEntry(b []byte) (key, value string, err error) {
	parts, err := cutMessage(b)
	return string(last(parts, mapKey)), string(last(parts, mapValue)), err
}

func markProto(value []byte, mark Mark) ([]byte, error) {
	envelope, object, metadata, err := cutProto(value)
	if err != nil {
		return nil, err
	}
	for number, changes := range map[protowire.Number]map[string]string{metaLabels: mark.Labels, metaAnnotations: mark.Annotations} {
		if metadata, err = markTexts(metadata, number, changes); err != nil {
			return nil, err
		}
	}
	raw := replace(object, objectMetadata, assemble(nil, metadata))
	return assemble(append([]byte{}, protoPrefix...), replace(envelope, unknownRaw, assemble(nil, raw))), nil
}

// markTexts changes one map of strings. Its entries come together, in the order of their keys, where the API server puts them:
// before the first field with a higher number.
func markTexts(fields []field, number protowire.Number, changes map[string]string) ([]field, error) {
	if len(changes) == 0 {
		return fields, nil
	}
	var entries []entry
	var others []field
	at := -1
	for _, f := range fields {
		if f.number == number {
			key, _, err := textEntry(f.content)
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry{key, f.whole})
			continue
		}
		if f.number > number && at < 0 {
			at = len(others)
		}
		others = append(others, f)
	}
	if at < 0 {
		at = len(others)
	}
	entries = change(entries, changes, func(key, text string) []byte {
		var b []byte
		b = protowire.AppendString(protowire.AppendTag(b, mapKey, protowire.BytesType), key)
		b = protowire.AppendString(protowire.AppendTag(b, mapValue, protowire.BytesType), text)
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), b)
	})
	changed := append([]field{}, others[:at]...)
	for _, e := range entries {
		changed = append(changed, field{number: number, whole: e.encoded})
	}
	return append(changed, others[at:]...), nil
}

// replace puts new content into the last field of a number, which is added if there is none.
func replace(fields []field, number protowire.Number, content []byte) []field {
	replaced := field{number: number, whole: protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content), content: content}
	result := append([]field{}, fields...)
	for i := len(result) - 1; i >= 0; i-- {
		if result[i].number == number {
			result[i] = replaced
			return result
		}
	}
	return append([]field{replaced}, result...)
}

func assemble(dst []byte, fields []field) []byte {
	for _, f := range fields {
		dst = append(dst, f.whole...)
	}
	return dst
}
