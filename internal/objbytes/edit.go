package objbytes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Edit is a change of an object's metadata.
type Edit struct {
	// Labels and Annotations are set. Those with an empty value are removed.
	Labels, Annotations map[string]string
	// ClearVersion removes the resourceVersion, which stored objects do not have.
	ClearVersion bool
}

// Apply returns the object with the edit, and everything else as it was: exactly what an API server would store.
func (e *Edit) Apply(object []byte) ([]byte, error) {
	if bytes.HasPrefix(object, []byte(ProtobufPrefix)) {
		return e.applyProtobuf(object)
	}
	return e.applyJSON(object)
}

// AppendMetadataField returns an object in protobuf, with its envelope, with a string set in its metadata. The new field follows the
// existing ones: decoders merge metadata that occurs twice, and the last of equal fields counts.
func AppendMetadataField(object []byte, number protowire.Number, value string) ([]byte, error) {
	content, ok := bytes.CutPrefix(object, []byte(ProtobufPrefix))
	if !ok {
		return nil, errPrefix
	}
	envelope, err := cutMessage(content)
	if err != nil {
		return nil, err
	}
	raw := bytes.Clone(lastContent(envelope, UnknownRaw))
	if _, err := cutMessage(raw); err != nil {
		return nil, err
	}
	raw = AppendBytes(raw, ObjectMetadata, AppendString(nil, number, value))
	return join([]byte(ProtobufPrefix), replaceLast(envelope, UnknownRaw, raw)), nil
}

func cutMessage(b []byte) (fields []Field, err error) {
	err = EachField(b, func(f Field) error {
		fields = append(fields, f)
		return nil
	})
	return fields, err
}

func lastContent(fields []Field, number protowire.Number) []byte {
	for i := len(fields) - 1; i >= 0; i-- {
		if fields[i].IsBytes(number) {
			return fields[i].Value
		}
	}
	return nil
}

// replaceLast puts content into the last field of a number. If there is none, the field comes first.
func replaceLast(fields []Field, number protowire.Number, content []byte) []Field {
	field := Field{Number: number, Type: protowire.BytesType, Value: content, Whole: AppendBytes(nil, number, content)}
	for i := len(fields) - 1; i >= 0; i-- {
		if fields[i].Number == number {
			result := slices.Clone(fields)
			result[i] = field
			return result
		}
	}
	return append([]Field{field}, fields...)
}

func join(dst []byte, fields []Field) []byte {
	for i := range fields {
		dst = append(dst, fields[i].Whole...)
	}
	return dst
}

func (e *Edit) applyProtobuf(value []byte) ([]byte, error) {
	envelope, err := cutMessage(value[len(ProtobufPrefix):])
	if err != nil {
		return nil, err
	}
	object, err := cutMessage(lastContent(envelope, UnknownRaw))
	if err != nil {
		return nil, err
	}
	found, err := ProtobufMetadata(lastContent(envelope, UnknownRaw))
	if err != nil {
		return nil, err
	}
	metadata, err := cutMessage(found.Value)
	if err != nil {
		return nil, err
	}
	if metadata, err = changeProtobufMap(metadata, MetaLabels, e.Labels); err != nil {
		return nil, err
	}
	if metadata, err = changeProtobufMap(metadata, MetaAnnotations, e.Annotations); err != nil {
		return nil, err
	}
	if e.ClearVersion {
		metadata = replaceLast(metadata, MetaVersion, nil) // API servers write empty strings, too
	}
	raw := join(nil, replaceLast(object, ObjectMetadata, join(nil, metadata)))
	return join([]byte(ProtobufPrefix), replaceLast(envelope, UnknownRaw, raw)), nil
}

// changeProtobufMap changes a map of strings. Its entries are written together, sorted by key, before the first field with a higher
// number: as API servers write them.
func changeProtobufMap(fields []Field, number protowire.Number, changes map[string]string) ([]Field, error) {
	if len(changes) == 0 {
		return fields, nil
	}
	var entries []entry
	var others []Field
	at := -1
	for _, f := range fields {
		if f.IsBytes(number) {
			key, _, err := MapEntry(f.Value)
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry{key: string(key), encoded: f.Whole})
			continue
		}
		if f.Number > number && at < 0 {
			at = len(others)
		}
		others = append(others, f)
	}
	if at < 0 {
		at = len(others)
	}
	entries = changeEntries(entries, changes, func(key, value string) []byte { return AppendMapEntry(nil, number, key, value) })
	changed := slices.Clone(others[:at])
	for _, e := range entries {
		changed = append(changed, Field{Number: number, Type: protowire.BytesType, Whole: e.encoded})
	}
	return append(changed, others[at:]...), nil
}

func (e *Edit) applyJSON(value []byte) (_ []byte, err error) {
	if !json.Valid(value) {
		return nil, ErrJSON
	}
	if value, err = changeJSONMap(value, "labels", e.Labels); err != nil {
		return nil, err
	}
	if value, err = changeJSONMap(value, "annotations", e.Annotations); err != nil {
		return nil, err
	}
	if !e.ClearVersion {
		return value, nil
	}
	at, members, err := metadataMembers(value)
	if err != nil {
		return nil, err
	}
	members = slices.DeleteFunc(members, func(m entry) bool { return m.key == "resourceVersion" })
	return replaceSpan(value, at, joinObject(members)), nil
}

// changeJSONMap changes a map of strings in the metadata. Members keep their order, and a new one is inserted before the first that is
// greater: API servers sort.
func changeJSONMap(value []byte, name string, changes map[string]string) ([]byte, error) {
	if len(changes) == 0 {
		return value, nil
	}
	at, members, err := metadataMembers(value)
	if err != nil {
		return nil, err
	}
	var entries []entry
	if i := slices.IndexFunc(members, func(m entry) bool { return m.key == name }); i >= 0 {
		if entries, err = membersOf(members[i].value); err != nil {
			return nil, err
		}
		members = slices.Delete(members, i, i+1)
	}
	entries = changeEntries(entries, changes, func(key, text string) []byte {
		return AppendQuoted(append(AppendQuoted(nil, key), ':'), text)
	})
	if len(entries) > 0 {
		members = insertEntry(members, entry{key: name, encoded: append(append(AppendQuoted(nil, name), ':'), joinObject(entries)...)})
	}
	return replaceSpan(value, at, joinObject(members)), nil
}

// entry is an encoded entry of a map.
type entry struct {
	key     string
	encoded []byte
	value   []byte // of a JSON object
}

// metadataMembers returns the members of a JSON object's metadata, and the range of the metadata.
func metadataMembers(object []byte) (at Span, members []entry, err error) {
	if at, err = JSONMetadata(object); err != nil {
		return at, nil, err
	}
	members, err = membersOf(at.Of(object))
	return at, members, err
}

// JSONMetadata returns the range of a JSON object's metadata. Metadata that occurs twice is refused: decoders disagree on what that means.
func JSONMetadata(object []byte) (metadata Span, err error) {
	_, err = EachMember(object, 0, func(m Member) error {
		if string(m.Key) != "metadata" {
			return nil
		}
		if metadata != (Span{}) {
			return fmt.Errorf("%w: metadata occurs twice", ErrJSON)
		}
		metadata = m.Value
		return nil
	})
	if err == nil && !IsObject(metadata.Of(object)) {
		err = ErrNoMetadata
	}
	return metadata, err
}

// membersOf returns the members of a JSON object; none of null.
func membersOf(object []byte) (members []entry, err error) {
	if isNull(object) {
		return nil, nil
	}
	_, err = EachMember(object, 0, func(m Member) error {
		key := string(m.Key)
		if slices.ContainsFunc(members, func(e entry) bool { return e.key == key }) {
			return fmt.Errorf("%w: %.60q occurs twice", ErrJSON, key)
		}
		members = append(members, entry{key, m.Whole.Of(object), m.Value.Of(object)})
		return nil
	})
	return members, err
}

func joinObject(members []entry) []byte {
	joined := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			joined = append(joined, ',')
		}
		joined = append(joined, m.encoded...)
	}
	return append(joined, '}')
}

func replaceSpan(b []byte, at Span, with []byte) []byte {
	return slices.Concat(b[:at.Start], with, b[at.End:])
}

// changeEntries sets and removes entries.
func changeEntries(entries []entry, changes map[string]string, encode func(key, value string) []byte) []entry {
	entries = slices.DeleteFunc(entries, func(e entry) bool { _, changed := changes[e.key]; return changed })
	for key, value := range changes {
		if value != "" {
			entries = insertEntry(entries, entry{key: key, encoded: encode(key, value)})
		}
	}
	return entries
}

// insertEntry inserts an entry before the first that is greater.
func insertEntry(entries []entry, e entry) []entry {
	i := slices.IndexFunc(entries, func(other entry) bool { return other.key > e.key })
	if i < 0 {
		i = len(entries)
	}
	return slices.Insert(entries, i, e)
}
