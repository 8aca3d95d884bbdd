package wire

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// VersionDigits is how many digits the resourceVersion of an edited object has.
const VersionDigits = 19

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Edit says how Append changes an object.
type Edit struct {
	// KeepManagedFields and KeepLastApplied keep what is dropped otherwise.
	KeepManagedFields, KeepLastApplied bool
	// Annotations are set.
	Annotations []Annotation
	// Drop are annotations that are dropped.
	Drop []string
}

// Annotation is an annotation.
type Annotation struct{ Key, Value string }

// Append appends the edited object to dst. Its metadata comes first, and in it a resourceVersion of zeros for Stamp.
func (o *Object) Append(dst []byte, edit *Edit) ([]byte, error) {
	// The metadata's length is written before its content; leaving room for the longest length saves a copy.
	const room = 1 + 5
	start := len(dst)
	dst = append(dst, make([]byte, room)...)
	dst = protowire.AppendTag(dst, metaVersion, protowire.BytesType)
	dst = append(dst, VersionDigits)
	for range VersionDigits {
		dst = append(dst, '0')
	}
	for rest := o.metadata; len(rest) > 0; {
		f, after, err := next(rest)
		if err != nil {
			return nil, err
		}
		rest = after
		drop, err := edit.drops(f)
		if err != nil {
			return nil, err
		}
		if !drop {
			dst = append(dst, f.whole...)
		}
	}
	for _, a := range edit.Annotations {
		dst = appendEntry(dst, metaAnnotations, a.Key, a.Value)
	}
	size := len(dst) - start - room
	head := protowire.AppendVarint(protowire.AppendTag(nil, objectMetadata, protowire.BytesType), uint64(size))
	copy(dst[start:], head)
	copy(dst[start+len(head):], dst[start+room:])
	dst = dst[:start+len(head)+size]
	for rest := o.raw; len(rest) > 0; {
		f, after, err := next(rest)
		if err != nil {
			return nil, err
		}
		rest = after
		if f.number != objectMetadata {
			dst = append(dst, f.whole...)
		}
	}
	return dst, nil
}

func (e *Edit) drops(f field) (bool, error) {
	switch f.number {
	case metaVersion:
		return true, nil
	case metaManagedFields:
		return !e.KeepManagedFields, nil
	case metaAnnotations:
		if f.kind != protowire.BytesType {
			return true, nil
		}
		key, _, err := entry(f.value)
		if err != nil {
			return false, fmt.Errorf("annotations: %w", err)
		}
		if string(key) == lastApplied && !e.KeepLastApplied {
			return true, nil
		}
		for _, a := range e.Annotations {
			if string(key) == a.Key {
				return true, nil
			}
		}
		return slices.Contains(e.Drop, string(key)), nil
	}
	return false, nil
}

var errNotEdited = errors.New("not an object that was edited here")

// Stamp overwrites the resourceVersion of an edited object, which must have VersionDigits digits.
func Stamp(edited []byte, version uint64) error {
	at, err := versionAt(edited)
	if err != nil {
		return err
	}
	for i := VersionDigits - 1; i >= 0; i-- {
		edited[at+i] = '0' + byte(version%10)
		version /= 10
	}
	return nil
}

// versionAt returns where the digits are.
func versionAt(edited []byte) (int, error) {
	if len(edited) == 0 || edited[0] != objectMetadata<<3|byte(protowire.BytesType) {
		return 0, errNotEdited
	}
	_, n := protowire.ConsumeVarint(edited[1:])
	at := 1 + n + 2
	if n < 0 || len(edited) < at+VersionDigits || edited[at-2] != metaVersion<<3|byte(protowire.BytesType) || edited[at-1] != VersionDigits {
		return 0, errNotEdited
	}
	return at, nil
}

// Annotated appends an edited object to dst with one more annotation.
func Annotated(dst, edited []byte, a Annotation) ([]byte, error) {
	if _, err := versionAt(edited); err != nil {
		return nil, err
	}
	metadata, n := protowire.ConsumeBytes(edited[1:])
	if n < 0 {
		return nil, errNotEdited
	}
	dst = protowire.AppendTag(dst, objectMetadata, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(len(metadata)+entrySize(a.Key, a.Value)))
	dst = append(dst, metadata...)
	dst = appendEntry(dst, metaAnnotations, a.Key, a.Value)
	return append(dst, edited[1+n:]...), nil
}

// AnnotatedSize returns how much longer Annotated makes an edited object.
func AnnotatedSize(edited []byte, a Annotation) (int, error) {
	metadata, n := protowire.ConsumeBytes(edited[min(1, len(edited)):])
	if n < 0 {
		return 0, errNotEdited
	}
	more := entrySize(a.Key, a.Value)
	return more + protowire.SizeVarint(uint64(len(metadata)+more)) - protowire.SizeVarint(uint64(len(metadata))), nil
}

// AnnotationOf returns an annotation of an edited or other object, or "".
func AnnotationOf(raw []byte, name string) string {
	var o Object
	if o.Parse(raw) != nil {
		return ""
	}
	found := ""
	for rest := o.metadata; len(rest) > 0; {
		f, after, err := next(rest)
		if err != nil {
			return ""
		}
		rest = after
		if f.number != metaAnnotations || f.kind != protowire.BytesType {
			continue
		}
		if key, value, err := entry(f.value); err == nil && string(key) == name {
			found = string(value)
		}
	}
	return found
}
