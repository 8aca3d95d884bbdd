package objbytes

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Metadata is an object's metadata. Its bytes are those of the object, unless JSON escapes had to be decoded.
type Metadata struct {
	Name, GenerateName, Namespace, UID, ResourceVersion []byte
	// VersionAt is the place of the resourceVersion within what was read: the whole field in protobuf, the quoted string in JSON. It
	// is empty if there is none.
	VersionAt Span
	// Deleting is set if the object has a deletionTimestamp.
	Deleting bool
	// Labels and Annotations are not decoded.
	Labels, Annotations Map

	// created is an encoded time in protobuf.
	created []byte
	// owners are encoded OwnerReferences in protobuf.
	owners [][]byte
}

// Reset clears the metadata. Its memory is used again.
func (m *Metadata) Reset() {
	*m = Metadata{Labels: Map{entries: m.Labels.entries[:0]}, Annotations: Map{entries: m.Annotations.entries[:0]}, owners: m.owners[:0]}
}

// ProtobufMetadata returns the field of an object in protobuf that is its metadata. Metadata that occurs twice is refused: decoders
// would merge it.
func ProtobufMetadata(object []byte) (metadata Field, err error) {
	for rest := object; len(rest) > 0; {
		f, after, err := NextField(rest)
		if err != nil {
			return metadata, err
		}
		rest = after
		if f.Number != ObjectMetadata {
			continue
		}
		if metadata.Number != 0 || f.Type != protowire.BytesType {
			return metadata, fmt.Errorf("%w: metadata is not one message", errProtobuf)
		}
		metadata = f
	}
	if metadata.Number == 0 {
		return metadata, ErrNoMetadata
	}
	return metadata, nil
}

// ReadProtobuf reads encoded metadata. Fields that were read before are overwritten and maps extended, as decoders do it if metadata
// occurs twice.
func (m *Metadata) ReadProtobuf(metadata []byte) error {
	for rest := metadata; len(rest) > 0; {
		f, after, err := NextField(rest)
		if err != nil {
			return err
		}
		at := len(metadata) - len(rest)
		rest = after
		if f.Type != protowire.BytesType {
			continue
		}
		switch f.Number {
		case MetaName:
			m.Name = f.Value
		case MetaGenerateName:
			m.GenerateName = f.Value
		case MetaNamespace:
			m.Namespace = f.Value
		case MetaUID:
			m.UID = f.Value
		case MetaVersion:
			m.ResourceVersion, m.VersionAt = f.Value, Span{at, at + len(f.Whole)}
		case MetaCreationTimestamp:
			m.created = f.Value
		case MetaDeletionTimestamp:
			m.Deleting = true
		case MetaLabels:
			m.Labels.entries = append(m.Labels.entries, f.Value)
		case MetaAnnotations:
			m.Annotations.entries = append(m.Annotations.entries, f.Value)
		case MetaOwnerReferences:
			m.owners = append(m.owners, f.Value)
		}
	}
	return nil
}

// MergeProtobuf reads the metadata of an object in protobuf, without its envelope, as decoders do: metadata that occurs twice is merged.
func (m *Metadata) MergeProtobuf(object []byte) error {
	for len(object) > 0 {
		f, rest, err := NextField(object)
		if err != nil {
			return err
		}
		object = rest
		if !f.IsBytes(ObjectMetadata) {
			continue
		}
		if err := m.ReadProtobuf(f.Value); err != nil {
			return err
		}
	}
	return nil
}

// ReadJSON reads the metadata in a range of b. VersionAt is relative to b. A member that occurs twice is refused: decoders disagree on
// what that means.
func (m *Metadata) ReadJSON(b []byte, metadata Span) error {
	if !IsObject(metadata.Of(b)) {
		return ErrNoMetadata
	}
	var seen uint
	_, err := EachMember(b[:metadata.End], metadata.Start, func(member Member) (err error) {
		var target *[]byte
		value := member.Value.Of(b)
		bit := uint(0)
		switch string(member.Key) {
		case "name":
			target, bit = &m.Name, 1
		case "generateName":
			target, bit = &m.GenerateName, 2
		case "namespace":
			target, bit = &m.Namespace, 4
		case "uid":
			target, bit = &m.UID, 8
		case "resourceVersion":
			target, bit = &m.ResourceVersion, 16
			m.VersionAt = member.Value
		case "labels":
			m.Labels.json, bit = value, 32
		case "annotations":
			m.Annotations.json, bit = value, 64
		case "deletionTimestamp":
			m.Deleting, bit = !isNull(value), 128
		default:
			return nil
		}
		if seen&bit != 0 {
			return fmt.Errorf("%w: metadata.%s occurs twice", ErrJSON, member.Key)
		}
		seen |= bit
		if target == nil || isNull(value) {
			return nil
		}
		if *target, err = String(value); err != nil {
			return fmt.Errorf("metadata.%s: %w", member.Key, err)
		}
		return nil
	})
	return err
}

// Created returns the creation time in seconds since 1970. It is known for protobuf only.
func (m *Metadata) Created() (seconds int64, err error) {
	for message := m.created; len(message) > 0; {
		f, rest, err := NextField(message)
		if err != nil {
			return 0, err
		}
		message = rest
		if f.Number == TimeSeconds && f.Type == protowire.VarintType {
			seconds = int64(f.Varint)
		}
	}
	return seconds, nil
}

// Controller returns the UID of the owner that controls the object, nil if there is none. It is known for protobuf only.
func (m *Metadata) Controller() ([]byte, error) {
	for _, owner := range m.owners {
		uid, controls := []byte{}, false
		for len(owner) > 0 {
			f, rest, err := NextField(owner)
			if err != nil {
				return nil, err
			}
			owner = rest
			switch {
			case f.IsBytes(OwnerUID):
				uid = f.Value
			case f.Number == OwnerController && f.Type == protowire.VarintType:
				controls = f.Varint != 0
			}
		}
		if controls {
			return uid, nil
		}
	}
	return nil, nil
}

// Map is an encoded map of strings: a JSON object, or the entries of a protobuf map.
type Map struct {
	json    []byte
	entries [][]byte
}

// Each calls visit for each entry, in the order of the encoding, until it returns an error. If a key is repeated the last entry counts.
func (m *Map) Each(visit func(key, value []byte) error) error {
	for _, entry := range m.entries {
		key, value, err := MapEntry(entry)
		if err != nil {
			return err
		}
		if err := visit(key, value); err != nil {
			return err
		}
	}
	if m.json == nil || isNull(m.json) {
		return nil
	}
	_, err := EachMember(m.json, 0, func(member Member) error {
		value := member.Value.Of(m.json)
		if isNull(value) {
			return visit(member.Key, nil)
		}
		value, err := String(value)
		if err != nil {
			return err
		}
		return visit(member.Key, value)
	})
	return err
}

// Get returns the value of a key, "" if there is none or the map cannot be read.
func (m *Map) Get(name string) string {
	var found []byte
	if err := m.Each(func(key, value []byte) error {
		if string(key) == name {
			found = value
		}
		return nil
	}); err != nil {
		return ""
	}
	return string(found)
}

// Strings returns the decoded map, nil if it is empty.
func (m *Map) Strings() (map[string]string, error) {
	var all map[string]string
	err := m.Each(func(key, value []byte) error {
		if all == nil {
			all = map[string]string{}
		}
		all[string(key)] = string(value)
		return nil
	})
	return all, err
}
