// Package difference compares two states of an object field by field.
package difference

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/names"
)

// Difference is a field in which two states of an object differ. Lists whose items do not correspond differ as a whole.
type Difference struct {
	// Path is for a JSON pointer, and Field for people.
	Path  []string
	Field string
	// From and To are the values; nil if the field is absent.
	From, To any
}

// Between returns the fields in which two states of an object in a member differ. It leaves out what every write
// changes: the bookkeeping of the API server, the status and the marks of the federation.
func Between(before, after *unstructured.Unstructured) []Difference {
	return Of(comparable(before), comparable(after))
}

// bookkeeping is the metadata that an API server changes with a write.
var bookkeeping = []string{"managedFields", "resourceVersion", "generation", "selfLink"}

func comparable(obj *unstructured.Unstructured) map[string]any {
	root, _ := WithoutNulls(obj.Object).(map[string]any)
	delete(root, "status")
	metadata, _ := root["metadata"].(map[string]any)
	for _, name := range bookkeeping {
		delete(metadata, name)
	}
	for _, name := range []string{"labels", "annotations"} {
		entries, _ := metadata[name].(map[string]any)
		maps.DeleteFunc(entries, func(key string, _ any) bool { return names.IsMark(key) })
		if len(entries) == 0 {
			delete(metadata, name)
		}
	}
	return root
}

// Of returns the differences between two values, sorted by path.
func Of(from, to map[string]any) []Difference {
	var found []Difference
	diffFields(&found, nil, "", from, to)
	return found
}

func diffFields(found *[]Difference, path []string, field string, from, to map[string]any) {
	keys := slices.Collect(maps.Keys(from))
	for key := range to {
		if _, both := from[key]; !both {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		diffValues(found, append(path, key), fieldName(field, key), from[key], to[key])
	}
}

func diffValues(found *[]Difference, path []string, field string, from, to any) {
	switch a := from.(type) {
	case map[string]any:
		if b, ok := to.(map[string]any); ok {
			diffFields(found, path, field, a, b)
			return
		}
	case []any:
		if b, ok := to.([]any); ok && correspond(a, b) {
			for i := range a {
				diffValues(found, append(path, strconv.Itoa(i)), itemName(field, i, a[i]), a[i], b[i])
			}
			return
		}
	}
	if !reflect.DeepEqual(from, to) && !sameNumber(from, to) {
		*found = append(*found, Difference{Path: slices.Clone(path), Field: field, From: from, To: to})
	}
}

// sameNumber reports whether two values are the same number: decoders differ in the type of 1.0.
func sameNumber(a, b any) bool {
	x, isInt := a.(int64)
	y, isFloat := b.(float64)
	if !isInt && !isFloat {
		y, isFloat = a.(float64)
		x, isInt = b.(int64)
	}
	return isInt && isFloat && float64(x) == y
}

// correspond reports whether the items of two lists can be compared one by one.
func correspond(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, isObject := a[i].(map[string]any)
		y, areObjects := b[i].(map[string]any)
		if !isObject || !areObjects || !reflect.DeepEqual(x["name"], y["name"]) {
			return false
		}
	}
	return true
}

func fieldName(parent, key string) string {
	switch {
	case parent == "":
		return key
	case strings.ContainsAny(key, "./"):
		return parent + "[" + key + "]"
	default:
		return parent + "." + key
	}
}

func itemName(list string, i int, item any) string {
	object, _ := item.(map[string]any)
	if name, ok := object["name"].(string); ok && name != "" {
		return list + "[" + name + "]"
	}
	return list + "[" + strconv.Itoa(i) + "]"
}

// WithoutNulls returns a value without fields that are null: API servers treat them as absent.
func WithoutNulls(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, field := range v {
			if field != nil {
				out[name] = WithoutNulls(field)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = WithoutNulls(v[i])
		}
		return out
	default:
		return value
	}
}
