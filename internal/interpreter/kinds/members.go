package kinds

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
)

// Member is what a member cluster reports of its object.
type Member struct {
	// Cluster names the member.
	Cluster string
	// Status is nil if the member has not reported one.
	Status map[string]any
}

// Failed names the member in an error about its status.
func (m Member) Failed(err error) error { return memberError(m.Cluster, err) }

func memberError(cluster string, err error) error {
	return fmt.Errorf("reading the status reported by cluster %s: %w", cluster, err)
}

// Decode reads the status an item carries into a struct of the fields wanted. It returns false if there is none.
func Decode(item *workv1alpha2.AggregatedStatusItem, into any) (bool, error) {
	raw, err := rawStatus(item)
	if err != nil || raw == nil {
		return false, err
	}
	err = json.Unmarshal(raw, into)
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		err = fields.Invalid("expected "+mismatch.Type.String()+", found "+mismatch.Value, "status", mismatch.Field)
	}
	if err != nil {
		return false, memberError(item.ClusterName, err)
	}
	return true, nil
}

// Members decodes the statuses of all items.
func Members(items []workv1alpha2.AggregatedStatusItem) ([]Member, error) {
	members := make([]Member, len(items))
	for i := range items {
		members[i].Cluster = items[i].ClusterName
		raw, err := rawStatus(&items[i])
		if err != nil {
			return nil, err
		}
		if raw == nil {
			continue
		}
		var value any
		if err := utiljson.Unmarshal(raw, &value); err != nil {
			return nil, memberError(items[i].ClusterName, err)
		}
		status, _, err := fields.Map(map[string]any{"status": value}, "status")
		if err != nil {
			return nil, memberError(items[i].ClusterName, err)
		}
		members[i].Status = status
	}
	return members, nil
}

// rawStatus returns the JSON of an item's status, nil if it has none.
func rawStatus(item *workv1alpha2.AggregatedStatusItem) ([]byte, error) {
	if item.Status == nil {
		return nil, nil
	}
	raw := item.Status.Raw
	if len(raw) == 0 && item.Status.Object != nil {
		var err error
		if raw, err = json.Marshal(item.Status.Object); err != nil {
			return nil, memberError(item.ClusterName, err)
		}
	}
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	return raw, nil
}

// Merge changes a status to what the members' statuses add up to. The status it is given is a copy of the template's
// own at the top level: it may set and delete fields, but not change what they hold.
type Merge func(template *unstructured.Unstructured, status map[string]any, members []Member) error

// Aggregate returns an AggregateStatus function that merges the members' statuses.
func Aggregate(merge Merge) func(*unstructured.Unstructured, []workv1alpha2.AggregatedStatusItem) (*unstructured.Unstructured, error) {
	return func(template *unstructured.Unstructured, items []workv1alpha2.AggregatedStatusItem) (*unstructured.Unstructured, error) {
		members, err := Members(items)
		if err != nil {
			return nil, err
		}
		old, _, err := fields.Map(template.Object, "status")
		if err != nil {
			return nil, err
		}
		status := make(map[string]any, len(old)+8)
		maps.Copy(status, old)
		if err := merge(template, status, members); err != nil {
			return nil, err
		}
		return WithStatus(template, old, status), nil
	}
}

// WithStatus returns the template with a new status, or the template itself if the status did not change.
func WithStatus(template *unstructured.Unstructured, old, status map[string]any) *unstructured.Unstructured {
	if len(old) == 0 && len(status) == 0 || reflect.DeepEqual(old, status) {
		return template
	}
	root := make(map[string]any, len(template.Object)+1)
	maps.Copy(root, template.Object)
	root["status"] = status
	return fields.Object(root)
}

// ObservedGeneration returns the generation a template may report as observed: its own if every member has
// processed it, otherwise the previous one. Tools must not conclude that an edit has reached all members before it
// has.
func ObservedGeneration(template *unstructured.Unstructured, status map[string]any, members []Member) (int64, error) {
	generation, _, err := fields.Int(template.Object, "metadata", "generation")
	if err != nil {
		return 0, err
	}
	before, _, err := fields.Int(status, "observedGeneration")
	if err != nil {
		return 0, fields.Under("status", err)
	}
	for _, m := range members {
		from, _, err := fields.Int(m.Status, "resourceTemplateGeneration")
		if err != nil {
			return 0, m.Failed(err)
		}
		own, _, err := fields.Int(m.Status, "generation")
		if err != nil {
			return 0, m.Failed(err)
		}
		observed, _, err := fields.Int(m.Status, "observedGeneration")
		if err != nil {
			return 0, m.Failed(err)
		}
		if from != generation || own != observed {
			return before, nil
		}
	}
	return generation, nil
}

// Generations returns a member object's own generation and that of the template it was made from, 0 where unknown.
func Generations(obj *unstructured.Unstructured) (own, template int64, err error) {
	if own, _, err = fields.Int(obj.Object, "metadata", "generation"); err != nil {
		return 0, 0, err
	}
	text, _, err := fields.String(obj.Object, "metadata", "annotations", names.TemplateGenerationAnnotation)
	if err != nil {
		return 0, 0, err
	}
	// An invalid annotation counts as unknown: the template is then not observed until it is repaired.
	template, err = strconv.ParseInt(text, 10, 64)
	if err != nil {
		return own, 0, nil
	}
	return own, template, nil
}

// ReflectWhole reports the whole status.
func ReflectWhole(obj *unstructured.Unstructured) (*runtime.RawExtension, error) {
	status, found, err := fields.Map(obj.Object, "status")
	if err != nil || !found {
		return nil, err
	}
	return Raw(status)
}

// ReflectFields returns a ReflectStatus function that reports some fields of the status.
func ReflectFields(wanted ...string) func(*unstructured.Unstructured) (*runtime.RawExtension, error) {
	return func(obj *unstructured.Unstructured) (*runtime.RawExtension, error) {
		status, found, err := fields.Map(obj.Object, "status")
		if err != nil || !found {
			return nil, err
		}
		return Raw(chosen(status, wanted))
	}
}

// ReflectObserved is ReflectFields plus what ObservedGeneration needs.
func ReflectObserved(wanted ...string) func(*unstructured.Unstructured) (*runtime.RawExtension, error) {
	return func(obj *unstructured.Unstructured) (*runtime.RawExtension, error) {
		status, found, err := fields.Map(obj.Object, "status")
		if err != nil || !found {
			return nil, err
		}
		own, template, err := Generations(obj)
		if err != nil {
			return nil, err
		}
		out := chosen(status, wanted)
		if observed, found := status["observedGeneration"]; found {
			out["observedGeneration"] = observed
		}
		if own != 0 {
			out["generation"] = own
		}
		if template != 0 {
			out["resourceTemplateGeneration"] = template
		}
		return Raw(out)
	}
}

func chosen(status map[string]any, wanted []string) map[string]any {
	out := make(map[string]any, len(wanted)+3)
	for _, name := range wanted {
		if value, found := status[name]; found && value != nil {
			out[name] = value
		}
	}
	return out
}

// Raw returns a JSON value in the form statuses are stored in.
func Raw(value any) (*runtime.RawExtension, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	return &runtime.RawExtension{Raw: raw}, nil
}

// SetList sets a field of a status to a list; an empty list removes it.
func SetList(status map[string]any, name string, list []any) {
	if len(list) == 0 {
		delete(status, name)
		return
	}
	status[name] = list
}

// SetText sets a field of a status to a text; an empty text removes it.
func SetText(status map[string]any, name, text string) {
	if text == "" {
		delete(status, name)
		return
	}
	status[name] = text
}

// Sum sets fields of a status to the sum of the members'. A sum of zero is not added to a status that lacks the field.
func Sum(status map[string]any, members []Member, wanted ...string) error {
	for _, name := range wanted {
		total := int64(0)
		for _, m := range members {
			n, _, err := fields.Int(m.Status, name)
			if err != nil {
				return m.Failed(err)
			}
			total += n
		}
		if _, set := status[name]; set || total != 0 {
			status[name] = total
		}
	}
	return nil
}
