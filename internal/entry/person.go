package entry

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cellplane/cellplane/api/names"
)

// Write is what a person has written to an object of a member, and the federation would set back.
type Write struct {
	// Manager is the field manager: the name of the program, as the member does not record users.
	Manager string
	At      time.Time
	Fields  []string
}

// Describe says who has written what, and when.
func (w *Write) Describe() string {
	const most = 5
	fields := w.Fields
	if len(fields) > most {
		fields = append(slices.Clone(fields[:most]), fmt.Sprintf("%d more", len(w.Fields)-most))
	}
	return fmt.Sprintf("%s wrote %s at %s", w.Manager, strings.Join(fields, ", "), w.At.UTC().Format(time.RFC3339))
}

// Federation says what the federation has done to an object.
type Federation struct {
	// Manager is its field manager.
	Manager string
	// Unchanged is set if it wants what it wanted when it last wrote the object. Every difference is then newer than that write.
	Unchanged bool
}

// Written returns the write of a person that a merge into the live object would set back, and whether there is one. The managed fields of the live
// object tell who has written a field. What was written before the federation's last write, and what was decided about already, does not count.
//
// Nobody owns a field that is not there: who has removed a field is not known.
func Written(live, merged *unstructured.Unstructured, federation Federation) (Write, bool) {
	managed := live.GetManagedFields()
	ours, seen := lastWrite(managed, func(manager string) bool { return manager == federation.Manager }), seenIn(live)
	if ours.IsZero() {
		return Write{}, false // nothing says what was there before
	}
	var found Write
	for i := range managed {
		entry := &managed[i]
		switch {
		case !isPerson(entry.Manager), entry.Time == nil, entry.FieldsV1 == nil:
			continue
		case !entry.Time.After(seen):
			continue
		case !federation.Unchanged && entry.Time.Time.Before(ours):
			continue
		}
		fields := differing(entry.FieldsV1, live.Object, merged.Object)
		if len(fields) == 0 {
			continue
		}
		found.Fields = append(found.Fields, fields...)
		if entry.Time.After(found.At) {
			found.Manager, found.At = entry.Manager, entry.Time.Time
		}
	}
	slices.Sort(found.Fields)
	found.Fields = slices.Compact(found.Fields)
	return found, len(found.Fields) > 0
}

// Seen returns the annotation by which all writes of people to an object up to now do not open its entry again, as a patch. All times are those of the
// member: they are compared with each other only.
func Seen(live *unstructured.Unstructured) map[string]any {
	at := lastWrite(live.GetManagedFields(), isPerson)
	if at.IsZero() {
		return nil
	}
	return map[string]any{names.EntrySeenAnnotation: at.UTC().Format(time.RFC3339)}
}

func seenIn(live *unstructured.Unstructured) time.Time {
	seen, err := time.Parse(time.RFC3339, live.GetAnnotations()[names.EntrySeenAnnotation])
	if err != nil {
		return time.Time{}
	}
	return seen
}

// lastWrite returns when a manager has last changed a field.
func lastWrite(managed []metav1.ManagedFieldsEntry, is func(manager string) bool) (last time.Time) {
	for i := range managed {
		if entry := &managed[i]; is(entry.Manager) && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// people are the programs by which people write: their names begin the user agent, from which API servers make the field manager. Controllers have
// others, and programs that are not known count as controllers.
var people = []string{"kubectl", "oc", "k9s", "Lens", "OpenLens", "Mozilla", "curl"}

func isPerson(manager string) bool {
	return slices.ContainsFunc(people, func(program string) bool { return manager == program || strings.HasPrefix(manager, program+"-") })
}

// differing returns the fields of a set whose values differ between two objects. Marks of the federation are left out.
func differing(set *metav1.FieldsV1, live, merged map[string]any) []string {
	owned := &fieldpath.Set{}
	if err := owned.FromJSON(set.GetRawReader()); err != nil {
		return nil
	}
	var fields []string
	owned.Leaves().Iterate(func(path fieldpath.Path) {
		if isMark(path) {
			return
		}
		if !reflect.DeepEqual(lookup(live, path), lookup(merged, path)) {
			fields = append(fields, strings.TrimPrefix(path.String(), "."))
		}
	})
	return fields
}

// isMark reports whether a path is that of a label or an annotation of the federation.
func isMark(path fieldpath.Path) bool {
	return len(path) >= 3 && path[0].FieldName != nil && *path[0].FieldName == "metadata" && path[2].FieldName != nil && names.IsMark(*path[2].FieldName)
}

// lookup returns the value at a path; nil if there is none.
func lookup(value any, path fieldpath.Path) any {
	for _, element := range path {
		value = child(value, element)
	}
	return value
}

func child(value any, element fieldpath.PathElement) any {
	if element.FieldName != nil {
		object, _ := value.(map[string]any)
		return object[*element.FieldName]
	}
	list, _ := value.([]any)
	var i int
	if element.Index != nil {
		i = *element.Index
	} else {
		i = slices.IndexFunc(list, func(item any) bool { return identifies(element, item) })
	}
	if i < 0 || i >= len(list) {
		return nil
	}
	return list[i]
}

// identifies reports whether an element of a path, which has keys or a value, is that of a list item.
func identifies(element fieldpath.PathElement, item any) bool {
	if element.Value != nil {
		return reflect.DeepEqual((*element.Value).Unstructured(), item)
	}
	object, isObject := item.(map[string]any)
	if !isObject || element.Key == nil {
		return false
	}
	for _, key := range *element.Key {
		if !reflect.DeepEqual(key.Value.Unstructured(), object[key.Name]) {
			return false
		}
	}
	return true
}
