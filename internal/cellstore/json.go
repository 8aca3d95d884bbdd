package cellstore

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/jsoncut"
)

// member is a member of a JSON object: from the quote of its key to the end of its value.
type member struct {
	key          string
	whole, value jsoncut.Span
}

// jsonObject is a JSON object that has been cut into its members.
type jsonObject struct {
	whole   jsoncut.Span // with the braces
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
func cutObject(b []byte, start int) (object jsonObject, err error) {
	var malformed error
	object.whole.Start = start
	object.whole.End, err = jsoncut.Each(b, start, func(m jsoncut.Member) bool {
		var key string
		if key, malformed = jsoncut.Text(b[m.Whole.Start : m.Whole.Start+len(m.Key)+2]); malformed != nil {
			return false
		}
		object.members = append(object.members, member{key, m.Whole, m.Value})
		return true
	})
	return object, cmp.Or(malformed, err)
}

// cutJSON returns a value's top level and its metadata.
func cutJSON(value []byte) (top, metadata jsonObject, err error) {
	if !json.Valid(value) {
		return top, metadata, jsoncut.ErrMalformed
	}
	if top, err = cutObject(value, 0); err != nil {
		return top, metadata, err
	}
	found, ok := top.find("metadata")
	if !ok {
		return top, metadata, errors.New("it has no metadata")
	}
	metadata, err = cutObject(value, found.value.Start)
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
	return jsoncut.Text(found.value.Of(b))
}

// texts returns a member that is a map of strings.
func (o jsonObject) texts(b []byte, name string) (map[string]string, error) {
	found, ok := o.find(name)
	if !ok || b[found.value.Start] != '{' {
		return nil, nil
	}
	object, err := cutObject(b, found.value.Start)
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(object.members))
	for _, m := range object.members {
		if all[m.key], err = jsoncut.Text(m.value.Of(b)); err != nil {
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
	if spec, ok := top.find("spec"); ok && value[spec.value.Start] == '{' {
		members, err := cutObject(value, spec.value.Start)
		if err != nil {
			return "", err
		}
		if resource, ok := members.find("resource"); ok && value[resource.value.Start] == '{' {
			members, err := cutObject(value, resource.value.Start)
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
	if exists && value[old.value.Start] == '{' {
		object, err := cutObject(value, old.value.Start)
		if err != nil {
			return nil, err
		}
		for _, m := range object.members {
			entries = append(entries, entry{m.key, m.whole.Of(value)})
		}
	}
	entries = change(entries, changes, func(key, text string) []byte { return append(append(quote(key), ':'), quote(text)...) })
	members := make([]entry, 0, len(metadata.members)+1)
	for _, m := range metadata.members {
		if m.key != name {
			members = append(members, entry{m.key, m.whole.Of(value)})
		}
	}
	if len(entries) > 0 {
		members = insert(members, entry{name, append(append(quote(name), ':'), join(entries)...)})
	}
	result := make([]byte, 0, len(value)+256)
	result = append(result, value[:metadata.whole.Start]...)
	result = append(result, join(members)...)
	return append(result, value[metadata.whole.End:]...), nil
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
