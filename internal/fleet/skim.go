package fleet

import (
	"bytes"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// Bare is an object without its managed fields. They are often the larger half of an object and rarely needed, so they are
// decoded only on demand.
type Bare struct {
	*unstructured.Unstructured
	managed []byte // as JSON
}

// Full returns the object with its managed fields. It shares all else with the bare object, which stays as it is.
func (b *Bare) Full() (*unstructured.Unstructured, error) {
	if len(b.managed) == 0 {
		return b.Unstructured, nil
	}
	var managed any
	if err := utiljson.Unmarshal(b.managed, &managed); err != nil {
		return nil, err
	}
	full := make(map[string]any, len(b.Object))
	for key, value := range b.Object {
		full[key] = value
	}
	before, _ := b.Object["metadata"].(map[string]any)
	metadata := make(map[string]any, len(before)+1)
	for key, value := range before {
		metadata[key] = value
	}
	metadata["managedFields"] = managed
	full["metadata"] = metadata
	return &unstructured.Unstructured{Object: full}, nil
}

// DecodeBare decodes an object of any kind into a [Bare] one. It overwrites its input.
func DecodeBare(object []byte) (runtime.Object, error) {
	bare := &Bare{Unstructured: &unstructured.Unstructured{}}
	if h, ok := skim(object); ok && h.managed.Key != nil {
		bare.managed = bytes.Clone(h.managed.Value.Of(object))
		object = cut(object, h.managed)
	}
	return bare, utiljson.Unmarshal(object, &bare.Object)
}

// DecodeUnstructured decodes an object of any kind, without its managed fields. It overwrites its input.
func DecodeUnstructured(object []byte) (runtime.Object, error) {
	obj := &unstructured.Unstructured{}
	return obj, utiljson.Unmarshal(WithoutManagedFields(object), &obj.Object)
}

// WithoutManagedFields returns an object in JSON without its managed fields. It overwrites its input.
func WithoutManagedFields(object []byte) []byte {
	if h, ok := skim(object); ok && h.managed.Key != nil {
		return cut(object, h.managed)
	}
	return object
}

// head is what is read of an object in JSON without decoding it.
type head struct {
	namespace, name, version []byte
	managed                  objbytes.Member // its key is nil if there are none
}

// skim reads the head of an object. It stops at the end of the metadata. It fails for what API servers do not write; the
// object is then decoded completely, which reports what is wrong with it.
func skim(object []byte) (h head, ok bool) {
	_, err := objbytes.EachMember(object, 0, func(m objbytes.Member) error {
		if string(m.Key) != "metadata" {
			return nil
		}
		_, err := objbytes.EachMember(object, m.Value.Start, func(m objbytes.Member) error {
			switch string(m.Key) {
			case "namespace":
				h.namespace = plainText(m.Value.Of(object))
			case "name":
				h.name = plainText(m.Value.Of(object))
			case "resourceVersion":
				h.version = plainText(m.Value.Of(object))
			case "managedFields":
				h.managed = m
			}
			return nil
		})
		ok = err == nil
		return objbytes.ErrStop
	})
	return h, ok && err == nil
}

// plainText returns what is between quotes, nil if it has escapes.
func plainText(value []byte) []byte {
	if len(value) < 2 || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return nil
	}
	return value[1 : len(value)-1]
}

// cut removes a member and one comma from an object, in place.
func cut(object []byte, m objbytes.Member) []byte {
	start, end := m.Whole.Start, m.Whole.End
	switch {
	case !m.Last:
		end = objbytes.SkipSpace(object, end) + 1
	case !m.First:
		start = bytes.LastIndexByte(object[:start], ',')
	}
	return append(object[:start], object[end:]...)
}
