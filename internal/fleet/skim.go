package fleet

import (
	"bytes"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Bare is an object without its managed fields. They are often the larger half of it and seldom looked at, so that they
// are decoded only for those who ask.
type Bare struct {
	*unstructured.Unstructured
	managed []byte // as JSON
}

// Full returns the object with its managed fields. The bare one stays as it is, but shares the rest with it.
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

// DecodeBare decodes an object of any kind into a [Bare] one. It overwrites what it is given.
func DecodeBare(object []byte) (runtime.Object, error) {
	bare := &Bare{Unstructured: &unstructured.Unstructured{}}
	if h, ok := skim(object); ok && h.managed.found() {
		bare.managed = bytes.Clone(h.managed.value(object))
		object = h.managed.cut(object)
	}
	return bare, utiljson.Unmarshal(object, &bare.Object)
}

// DecodeUnstructured decodes an object of any kind, without its managed fields. It overwrites what it is given.
func DecodeUnstructured(object []byte) (runtime.Object, error) {
	obj := &unstructured.Unstructured{}
	return obj, utiljson.Unmarshal(WithoutManagedFields(object), &obj.Object)
}

// WithoutManagedFields returns an object in JSON without its managed fields. It overwrites what it is given.
func WithoutManagedFields(object []byte) []byte {
	if h, ok := skim(object); ok && h.managed.found() {
		return h.managed.cut(object)
	}
	return object
}

// head is what can be told of an object in JSON without decoding it.
type head struct {
	namespace, name, version []byte
	managed                  member
}

// member is a member of an object: where it begins, where its value is, and the commas around it.
type member struct {
	start, valueStart, end int
	before, after          bool
}

func (m *member) found() bool { return m.end > 0 }

func (m *member) value(object []byte) []byte { return object[m.valueStart:m.end] }

// cut takes the member out, and one comma with it. It moves what is behind it.
func (m *member) cut(object []byte) []byte {
	start, end := m.start, m.end
	switch {
	case m.after:
		end = skipSpace(object, end) + 1
	case m.before:
		start = bytes.LastIndexByte(object[:start], ',')
	}
	return append(object[:start], object[end:]...)
}

// skim reads the head of an object. It looks no further than the end of the metadata, and gives up on what API servers
// do not write: then the object is decoded by the book, which finds out what is wrong with it.
func skim(object []byte) (h head, ok bool) {
	ok = false
	read := eachMember(object, 0, func(key []byte, m member) bool {
		if string(key) != "metadata" {
			return true
		}
		ok = eachMember(object, m.valueStart, func(key []byte, m member) bool {
			switch string(key) {
			case "namespace":
				h.namespace = text(m.value(object))
			case "name":
				h.name = text(m.value(object))
			case "resourceVersion":
				h.version = text(m.value(object))
			case "managedFields":
				h.managed = m
			}
			return true
		})
		return false
	})
	return h, ok && read
}

// text returns what is between quotes, nil if there is anything that would have to be decoded.
func text(value []byte) []byte {
	if len(value) < 2 || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return nil
	}
	return value[1 : len(value)-1]
}

// eachMember calls visit for the members of the object that begins at i until it returns false. The result tells
// whether all that was looked at is well formed.
func eachMember(b []byte, i int, visit func(key []byte, m member) bool) bool {
	i = skipSpace(b, i)
	if i >= len(b) || b[i] != '{' {
		return false
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == '}' {
		return true
	}
	for before := false; ; before = true {
		m := member{start: i, before: before}
		keyEnd := skipValue(b, i)
		if keyEnd < 0 || b[i] != '"' {
			return false
		}
		colon := skipSpace(b, keyEnd)
		if colon >= len(b) || b[colon] != ':' {
			return false
		}
		m.valueStart = skipSpace(b, colon+1)
		if m.end = skipValue(b, m.valueStart); m.end < 0 {
			return false
		}
		next := skipSpace(b, m.end)
		if next >= len(b) || b[next] != ',' && b[next] != '}' {
			return false
		}
		m.after = b[next] == ','
		if !visit(b[i+1:keyEnd-1], m) {
			return true
		}
		if !m.after {
			return true
		}
		i = skipSpace(b, next+1)
	}
}

// skipValue returns where the value that begins at i ends, -1 if it does not.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return -1
			}
		default:
			if depth == 0 {
				return skipScalar(b, i)
			}
		}
		i++
	}
	return -1
}

// skipString returns where the string that begins at i ends, -1 if it does not.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return -1
}

// skipScalar returns where the number or word that begins at i ends.
func skipScalar(b []byte, i int) int {
	start := i
	for i < len(b) && bytes.IndexByte([]byte(",}] \t\r\n:"), b[i]) < 0 {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}
