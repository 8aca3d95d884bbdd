package wire

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// VersionDigits is the number of digits of an edited object's resourceVersion.
const VersionDigits = 19

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Edit is the change that Append makes.
type Edit struct {
	// KeepManagedFields and KeepLastApplied keep what is otherwise dropped.
	KeepManagedFields, KeepLastApplied bool
	// Annotations are set.
	Annotations []Annotation
	// Drop are annotations that are dropped.
	Drop []string
}

// Annotation is an annotation.
type Annotation struct{ Key, Value string }

// Append appends the edited object to dst. The metadata comes first, and in it a resourceVersion of zeros, which Stamp overwrites.
func (o *Object) Append(dst []byte, edit *Edit) ([]byte, error) {
	// The length of the metadata precedes its content. Reserving space for the longest length saves a copy.
	const reserved = 1 + 5
	start := len(dst)
	dst = append(dst, make([]byte, reserved)...)
	dst = protowire.AppendTag(dst, objbytes.MetaVersion, protowire.BytesType)
	dst = append(dst, VersionDigits)
	for range VersionDigits {
		dst = append(dst, '0')
	}
	for rest := o.encodedMetadata; len(rest) > 0; {
		f, after, err := objbytes.NextField(rest)
		if err != nil {
			return nil, err
		}
		rest = after
		drop, err := edit.drops(&f)
		if err != nil {
			return nil, err
		}
		if !drop {
			dst = append(dst, f.Whole...)
		}
	}
	for _, a := range edit.Annotations {
		dst = objbytes.AppendMapEntry(dst, objbytes.MetaAnnotations, a.Key, a.Value)
	}
	size := len(dst) - start - reserved
	head := protowire.AppendVarint(protowire.AppendTag(nil, objbytes.ObjectMetadata, protowire.BytesType), uint64(size))
	copy(dst[start:], head)
	copy(dst[start+len(head):], dst[start+reserved:])
	dst = dst[:start+len(head)+size]
	for rest := o.raw; len(rest) > 0; {
		f, after, err := objbytes.NextField(rest)
		if err != nil {
			return nil, err
		}
		rest = after
		if f.Number != objbytes.ObjectMetadata {
			dst = append(dst, f.Whole...)
		}
	}
	return dst, nil
}

func (e *Edit) drops(f *objbytes.Field) (bool, error) {
	switch f.Number {
	case objbytes.MetaVersion:
		return true, nil
	case objbytes.MetaManagedFields:
		return !e.KeepManagedFields, nil
	case objbytes.MetaAnnotations:
		if f.Type != protowire.BytesType {
			return true, nil
		}
		key, _, err := objbytes.MapEntry(f.Value)
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

// The tags of the metadata and of the resourceVersion are one byte each.
const (
	metadataTag = byte(objbytes.ObjectMetadata<<3) | byte(protowire.BytesType)
	versionTag  = byte(objbytes.MetaVersion<<3) | byte(protowire.BytesType)
)

var errNotEdited = errors.New("not an object that Append has written")

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

// versionAt returns the index of the digits.
func versionAt(edited []byte) (int, error) {
	if len(edited) == 0 || edited[0] != metadataTag {
		return 0, errNotEdited
	}
	_, n := protowire.ConsumeVarint(edited[1:])
	at := 1 + n + 2
	if n < 0 || len(edited) < at+VersionDigits || edited[at-2] != versionTag || edited[at-1] != VersionDigits {
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
	dst = protowire.AppendTag(dst, objbytes.ObjectMetadata, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(len(metadata)+objbytes.SizeMapEntry(objbytes.MetaAnnotations, a.Key, a.Value)))
	dst = append(dst, metadata...)
	dst = objbytes.AppendMapEntry(dst, objbytes.MetaAnnotations, a.Key, a.Value)
	return append(dst, edited[1+n:]...), nil
}

// AnnotationOf returns an annotation of an object, "" if there is none.
func AnnotationOf(raw []byte, name string) string {
	var o Object
	if o.Parse(raw) != nil {
		return ""
	}
	return o.metadata.Annotations.Get(name)
}
