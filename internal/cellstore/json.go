package cellstore

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var errJSON = errors.New("malformed JSON")

// span is a range of bytes.
type span struct{ start, end int }

func (s span) of(b []byte) []byte { return b[s.start:s.end] }

// member is a member of a JSON object: from the quote of its key to the end of its value.
type member struct {
	key   string
	whole span
	value span
}

// jsonObject is a JSON object that has been cut into its members.
type jsonObject struct {
	whole   span // with the braces
	members []member
}

func (o jsonObject) find(key string) (member, bool) {
	i := slices.IndexFunc(o.members, func(m member) bool { return m.key == key })
	if i < 0 {
		return member{}, false
	}
	return o.members[i], true
}

// cutObject cuts the JSON object that begins at start into its members. b has been found valid.
func cutObject(b []byte, start int) (jsonObject, error) {
	if start >= len(b) || b[start] != '{' {
		return jsonObject{}, errJSON
	}
	object := jsonObject{whole: span{start, 0}}
	for i := skipSpace(b, start+1); i < len(b); {
		if b[i] == '}' {
			object.whole.end = i + 1
			return object, nil
		}
		if b[i] == ',' {
			i = skipSpace(b, i+1)
		}
		keyEnd, err := skipValue(b, i)
		if err != nil {
			return object, err
		}
		key, err := stringOf(b[i:keyEnd])
		if err != nil {
			return object, err
		}
		colon := skipSpace(b, keyEnd)
		if colon >= len(b) || b[colon] != ':' {
			return object, errJSON
		}
		valueStart := skipSpace(b, colon+1)
		valueEnd, err := skipValue(b, valueStart)
		if err != nil {
			return object, err
		}
		object.members = append(object.members, member{key, span{i, valueEnd}, span{valueStart, valueEnd}})
		i = skipSpace(b, valueEnd)
	}
	return object, errJSON
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the end of the value that begins at i. In valid JSON it is enough to count brackets outside of strings.
func skipValue(b []byte, i int) (int, error) {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			end := skipString(b, i)
			if end < 0 {
				return 0, errJSON
			}
			i = end
			if depth == 0 {
				return i, nil
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i, nil // the end of a number or literal
			}
			if depth--; depth == 0 {
				return i + 1, nil
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i, nil
			}
		}
		i++
	}
	return 0, errJSON
}

func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

func stringOf(quoted []byte) (string, error) {
	if len(quoted) < 2 || quoted[0] != '"' {
		return "", errJSON
	}
	inner := quoted[1 : len(quoted)-1]
	if !slices.Contains(inner, '\\') {
		return string(inner), nil
	}
	var s string
	err := json.Unmarshal(quoted, &s)
	return s, err
}

// cutJSON returns a value's top level and its metadata.
func cutJSON(value []byte) (top, metadata jsonObject, err error) {
	if !json.Valid(value) {
		return top, metadata, errJSON
	}
	if top, err = cutObject(value, 0); err != nil {
		return top, metadata, err
	}
	found, ok := top.find("metadata")
	if !ok {
		return top, metadata, errors.New("it has no metadata")
	}
	metadata, err = cutObject(value, found.value.start)
	return top, metadata, err
}

func parseJSON(value []byte) (*Object, error) {
	top, metadata, err := cutJSON(value)
	if err != nil {
		return nil, err
	}
	var apiVersion string
	object := &Object{}
	for _, field := range []struct {
		in   jsonObject
		name string
		into *string
	}{
		{top, "apiVersion", &apiVersion}, {top, "kind", &object.Kind},
		{metadata, "name", &object.Name}, {metadata, "namespace", &object.Namespace}, {metadata, "uid", &object.UID},
	} {
		if *field.into, err = field.in.text(value, field.name); err != nil {
			return nil, err
		}
	}
	kind := object.Kind
	object.GroupVersionKind = schema.FromAPIVersionAndKind(apiVersion, kind)
	_, object.Deleting = metadata.find("deletionTimestamp")
	if object.Labels, err = metadata.texts(value, "labels"); err != nil {
		return nil, err
	}
	if object.Annotations, err = metadata.texts(value, "annotations"); err != nil {
		return nil, err
	}
	if kind == "ResourceBinding" && object.Group == bindingGroup {
		object.TemplateName, err = templateName(value, top, object.Name)
	}
	return object, err
}

// text returns a member that is a string; "" if there is none.
func (o jsonObject) text(b []byte, name string) (string, error) {
	found, ok := o.find(name)
	if !ok {
		return "", nil
	}
	return stringOf(found.value.of(b))
}

// texts returns a member that is a map of strings.
func (o jsonObject) texts(b []byte, name string) (map[string]string, error) {
	found, ok := o.find(name)
	if !ok || b[found.value.start] != '{' {
		return nil, nil
	}
	object, err := cutObject(b, found.value.start)
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(object.members))
	for _, m := range object.members {
		if all[m.key], err = stringOf(m.value.of(b)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

const bindingGroup = "work.karmada.io"

// templateName returns the name of a binding's template. A binding is called after it, `<name>-<kind>`, and found by it; what the
// binding says about its template only tells where to cut.
func templateName(value []byte, top jsonObject, binding string) (string, error) {
	var kind string
	if spec, ok := top.find("spec"); ok && value[spec.value.start] == '{' {
		members, err := cutObject(value, spec.value.start)
		if err != nil {
			return "", err
		}
		if resource, ok := members.find("resource"); ok && value[resource.value.start] == '{' {
			members, err := cutObject(value, resource.value.start)
			if err != nil {
				return "", err
			}
			if kind, err = members.text(value, "kind"); err != nil {
				return "", err
			}
		}
	}
	if name, cut := strings.CutSuffix(binding, "-"+strings.ToLower(kind)); cut && name != "" {
		return name, nil
	}
	if dash := strings.LastIndexByte(binding, '-'); dash > 0 {
		return binding[:dash], nil
	}
	return binding, nil
}

func markJSON(value []byte, mark Mark) ([]byte, error) {
	_, metadata, err := cutJSON(value)
	if err != nil {
		return nil, err
	}
	for name, changes := range map[string]map[string]string{"labels": mark.Labels, "annotations": mark.Annotations} {
		if len(changes) == 0 {
			continue
		}
		if value, err = markMap(value, metadata, name, changes); err != nil {
			return nil, err
		}
		if _, metadata, err = cutJSON(value); err != nil {
			return nil, err
		}
	}
	return value, nil
}

// markMap changes one map of strings in the metadata. Members keep their order, and new ones come where sorting would put them: API
// servers sort.
func markMap(value []byte, metadata jsonObject, name string, changes map[string]string) ([]byte, error) {
	var entries []entry
	old, exists := metadata.find(name)
	if exists && value[old.value.start] == '{' {
		object, err := cutObject(value, old.value.start)
		if err != nil {
			return nil, err
		}
		for _, m := range object.members {
			entries = append(entries, entry{m.key, m.whole.of(value)})
		}
	}
	entries = change(entries, changes, func(key, text string) []byte { return append(append(quote(key), ':'), quote(text)...) })
	members := make([]entry, 0, len(metadata.members)+1)
	for _, m := range metadata.members {
		if m.key != name {
			members = append(members, entry{m.key, m.whole.of(value)})
		}
	}
	if len(entries) > 0 {
		members = insert(members, entry{name, append(append(quote(name), ':'), join(entries)...)})
	}
	result := make([]byte, 0, len(value)+256)
	result = append(result, value[:metadata.whole.start]...)
	result = append(result, join(members)...)
	return append(result, value[metadata.whole.end:]...), nil
}

// quote encodes a string as API servers do.
func quote(s string) []byte {
	quoted, _ := json.Marshal(s) // strings can always be encoded
	return quoted
}

func join(entries []entry) []byte {
	joined := []byte{'{'}
	for i, e := range entries {
		if i > 0 {
			joined = append(joined, ',')
		}
		joined = append(joined, e.encoded...)
	}
	return append(joined, '}')
}

// entry is an encoded entry of a map.
type entry struct {
	key     string
	encoded []byte
}

// change sets and removes entries.
func change(entries []entry, changes map[string]string, encode func(key, value string) []byte) []entry {
	entries = slices.DeleteFunc(entries, func(e entry) bool { _, changed := changes[e.key]; return changed })
	for key, value := range changes {
		if value != "" {
			entries = insert(entries, entry{key, encode(key, value)})
		}
	}
	return entries
}

// insert puts an entry before the first that is greater.
func insert(entries []entry, e entry) []entry {
	i := slices.IndexFunc(entries, func(other entry) bool { return other.key > e.key })
	if i < 0 {
		i = len(entries)
	}
	return slices.Insert(entries, i, e)
}
