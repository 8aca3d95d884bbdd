package cell

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"
)

// API servers store what the schema of a kind allows, which is more than its type can hold: to a schema, durations,
// quantities and times are strings. An object with the duration "soon" must not keep the engine from reading the
// others, nor look as if it were deleted. So invalid values are left out.

// mend returns an object in JSON without values that its type cannot hold, and their paths.
func mend(object []byte, into reflect.Type) (mended []byte, left []string, err error) {
	var value map[string]any
	if err := utiljson.Unmarshal(object, &value); err != nil {
		return nil, nil, err
	}
	readable(value, into, "", &left)
	mended, err = json.Marshal(value)
	return mended, left, err
}

// readable reports whether a type can hold a value, after removing the parts that it cannot hold.
func readable(value any, t reflect.Type, path string, left *[]string) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	fields, isObject := value.(map[string]any)
	items, isList := value.([]any)
	ok := true
	switch {
	case value == nil:
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		ok = fits(value, t)
	case t.Kind() == reflect.Struct && isObject:
		mendStruct(fields, t, path, left)
	case t.Kind() == reflect.Map && isObject:
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			if !readable(fields[key], t.Elem(), path+"."+key, left) {
				delete(fields, key)
			}
		}
	case t.Kind() == reflect.Slice && isList:
		for i := range items {
			if !readable(items[i], t.Elem(), fmt.Sprintf("%s[%d]", path, i), left) {
				items[i] = nil // the others keep their indexes
			}
		}
	default:
		ok = fits(value, t)
	}
	if !ok {
		*left = append(*left, strings.TrimPrefix(path, "."))
	}
	return ok
}

// mendStruct removes the fields that a struct cannot hold.
func mendStruct(fields map[string]any, t reflect.Type, path string, left *[]string) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && field.Anonymous && field.Type.Kind() == reflect.Struct {
			mendStruct(fields, field.Type, path, left)
			continue
		}
		if value, set := fields[name]; set && !readable(value, field.Type, path+"."+name, left) {
			delete(fields, name)
		}
	}
}

func fits(value any, t reflect.Type) bool {
	text, err := json.Marshal(value)
	return err == nil && utiljson.Unmarshal(text, reflect.New(t).Interface()) == nil
}

// readItem decodes an object without its invalid values.
func readItem(object []byte, t reflect.Type) (runtime.Object, error) {
	obj := reflect.New(t).Interface().(runtime.Object)
	failed := utiljson.Unmarshal(object, obj)
	if failed == nil {
		return obj, nil
	}
	mended, left, err := mend(object, t)
	if err != nil || len(left) == 0 {
		return nil, failed
	}
	obj = reflect.New(t).Interface().(runtime.Object)
	if err := utiljson.Unmarshal(mended, obj); err != nil {
		return nil, failed
	}
	logInvalid(mended, t, left, failed)
	return obj, nil
}

// readList decodes a list object by object, each without its invalid values.
func readList(body []byte, list runtime.Object, item reflect.Type) error {
	var raw map[string]json.RawMessage
	var items []json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		return fmt.Errorf("reading a list: %w", err)
	}
	if err := json.Unmarshal(raw["items"], &items); err != nil {
		return fmt.Errorf("reading a list: %w", err)
	}
	objects := reflect.MakeSlice(reflect.SliceOf(item), 0, len(items))
	for i := range items {
		obj, err := readItem(items[i], item)
		if err != nil {
			return fmt.Errorf("reading an object of a list: %w", err)
		}
		objects = reflect.Append(objects, reflect.ValueOf(obj).Elem())
	}
	delete(raw, "items")
	rest, err := json.Marshal(raw)
	if err != nil {
		return fmt.Errorf("reading a list: %w", err)
	}
	if err := utiljson.Unmarshal(rest, list); err != nil {
		return fmt.Errorf("reading a list: %w", err)
	}
	reflect.ValueOf(list).Elem().FieldByName("Items").Set(objects)
	return nil
}

func logInvalid(object []byte, t reflect.Type, left []string, err error) {
	var about struct {
		Metadata struct{ Namespace, Name string }
	}
	_ = json.Unmarshal(object, &about) // only for the message
	klog.Background().Info("ignoring invalid values of an object", "kind", t.Name(),
		"object", klog.KRef(about.Metadata.Namespace, about.Metadata.Name), "fields", left, "err", err)
}
