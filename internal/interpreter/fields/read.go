package fields

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// TypeError says that a field does not hold what its kind requires.
type TypeError struct {
	// Path is the field, such as spec.template.spec.containers[1].name.
	Path string
	// Problem completes a sentence about the field, such as "expected a string, found a number".
	Problem string
}

// Error returns the field and its problem.
func (e *TypeError) Error() string { return e.Path + ": " + e.Problem }

// Invalid returns a TypeError for a field.
func Invalid(problem string, path ...string) error {
	return &TypeError{Path: join(path), Problem: problem}
}

// Under prepends a path to the field a TypeError names, for callers that handed out a part of a larger object.
func Under(prefix string, err error) error {
	var typed *TypeError
	if prefix == "" || err == nil || !errors.As(err, &typed) {
		return err
	}
	return &TypeError{Path: join([]string{prefix, typed.Path}), Problem: typed.Problem}
}

// Lookup returns the value of a field. A missing field and an explicit null are both reported as not found.
func Lookup(obj map[string]any, path ...string) (any, bool, error) {
	for i, name := range path {
		value, ok := obj[name]
		if !ok || value == nil {
			return nil, false, nil
		}
		if i == len(path)-1 {
			return value, true, nil
		}
		if obj, ok = value.(map[string]any); !ok {
			return nil, false, mismatch("an object", value, path[:i+1])
		}
	}
	return obj, obj != nil, nil
}

// Map returns a field holding an object.
func Map(obj map[string]any, path ...string) (map[string]any, bool, error) {
	value, found, err := Lookup(obj, path...)
	if err != nil || !found {
		return nil, false, err
	}
	m, ok := value.(map[string]any)
	if !ok {
		return nil, false, mismatch("an object", value, path)
	}
	return m, true, nil
}

// Slice returns a field holding a list.
func Slice(obj map[string]any, path ...string) ([]any, bool, error) {
	value, found, err := Lookup(obj, path...)
	if err != nil || !found {
		return nil, false, err
	}
	s, ok := value.([]any)
	if !ok {
		return nil, false, mismatch("a list", value, path)
	}
	return s, true, nil
}

// Objects returns a field holding a list of objects.
func Objects(obj map[string]any, path ...string) ([]map[string]any, error) {
	list, found, err := Slice(obj, path...)
	if err != nil || !found || len(list) == 0 {
		return nil, err
	}
	objects := make([]map[string]any, len(list))
	for i, value := range list {
		m, ok := value.(map[string]any)
		if !ok {
			return nil, mismatch("an object", value, []string{join(path) + Index(i)})
		}
		objects[i] = m
	}
	return objects, nil
}

// String returns a field holding a string.
func String(obj map[string]any, path ...string) (string, bool, error) {
	value, found, err := Lookup(obj, path...)
	if err != nil || !found {
		return "", false, err
	}
	s, ok := value.(string)
	if !ok {
		return "", false, mismatch("a string", value, path)
	}
	return s, true, nil
}

// Bool returns a field holding a boolean.
func Bool(obj map[string]any, path ...string) (value, found bool, err error) {
	raw, found, err := Lookup(obj, path...)
	if err != nil || !found {
		return false, false, err
	}
	b, ok := raw.(bool)
	if !ok {
		return false, false, mismatch("a boolean", raw, path)
	}
	return b, true, nil
}

// Int returns a field holding an integer.
func Int(obj map[string]any, path ...string) (int64, bool, error) {
	value, found, err := Lookup(obj, path...)
	if err != nil || !found {
		return 0, false, err
	}
	n, ok := AsInt(value)
	if !ok {
		return 0, false, mismatch("an integer", value, path)
	}
	return n, true, nil
}

// Count returns a field holding a number of things: an integer from 0 to the largest int32.
func Count(obj map[string]any, path ...string) (int32, bool, error) {
	n, found, err := Int(obj, path...)
	if err != nil || !found {
		return 0, false, err
	}
	if n < 0 || n > math.MaxInt32 {
		return 0, false, Invalid(fmt.Sprintf("%d is not between 0 and %d", n, math.MaxInt32), path...)
	}
	return int32(n), true, nil
}

// Strings returns a field holding an object whose values are all strings. The result is a copy.
func Strings(obj map[string]any, path ...string) (map[string]string, bool, error) {
	m, found, err := Map(obj, path...)
	if err != nil || !found {
		return nil, false, err
	}
	out := make(map[string]string, len(m))
	for key, value := range m {
		s, ok := value.(string)
		if !ok {
			return nil, false, mismatch("a string", value, append(append([]string(nil), path...), key))
		}
		out[key] = s
	}
	return out, true, nil
}

// Index renders a list index as it appears in a path.
func Index(i int) string { return "[" + strconv.Itoa(i) + "]" }

// AsInt returns the integer a decoded JSON value stands for.
func AsInt(value any) (int64, bool) {
	switch v := value.(type) {
	case int64:
		return v, true
	case int:
		return int64(v), true
	case int32:
		return int64(v), true
	case float64:
		n := int64(v)
		return n, float64(n) == v && math.Abs(v) < 1<<53
	case json.Number:
		n, err := v.Int64()
		return n, err == nil
	}
	return 0, false
}

func mismatch(want string, found any, path []string) error {
	return Invalid("expected "+want+", found "+describe(found), path...)
}

// describe names the type of a value and never shows the value: fields may hold secrets.
func describe(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case int, int32, int64, float64, json.Number:
		return "a number"
	}
	return fmt.Sprintf("a %T", value)
}

func join(path []string) string {
	var b strings.Builder
	for _, part := range path {
		if b.Len() > 0 && !strings.HasPrefix(part, "[") {
			b.WriteByte('.')
		}
		b.WriteString(part)
	}
	return b.String()
}
