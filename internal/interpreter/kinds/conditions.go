package kinds

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/internal/interpreter/fields"
)

// Conditions returns the conditions of a status.
func Conditions(status map[string]any) ([]map[string]any, error) {
	return fields.Objects(status, "conditions")
}

// Condition returns the status and the reason of a condition of an object, empty if it has no such condition.
func Condition(obj *unstructured.Unstructured, conditionType string) (status, reason string, err error) {
	conditions, err := fields.Objects(obj.Object, "status", "conditions")
	if err != nil {
		return "", "", err
	}
	for i, condition := range conditions {
		texts, err := conditionTexts(condition)
		if err != nil {
			return "", "", fields.Under("status.conditions"+fields.Index(i), err)
		}
		if texts.kind == conditionType {
			return texts.status, texts.reason, nil
		}
	}
	return "", "", nil
}

type texts struct{ kind, status, reason, message string }

func conditionTexts(condition map[string]any) (t texts, err error) {
	if t.kind, _, err = fields.String(condition, "type"); err != nil {
		return t, err
	}
	if t.status, _, err = fields.String(condition, "status"); err != nil {
		return t, err
	}
	if t.reason, _, err = fields.String(condition, "reason"); err != nil {
		return t, err
	}
	t.message, _, err = fields.String(condition, "message")
	return t, err
}

// MergedConditions returns the conditions of all members. Those that agree in type, status and reason become one,
// whose message says which member said what.
func MergedConditions(members []Member) ([]any, error) {
	merged := []any{}
	var seen []texts
	for _, m := range members {
		conditions, err := Conditions(m.Status)
		if err != nil {
			return nil, m.Failed(err)
		}
	next:
		for i, condition := range conditions {
			t, err := conditionTexts(condition)
			if err != nil {
				return nil, m.Failed(fields.Under("conditions"+fields.Index(i), err))
			}
			said := m.Cluster + "=" + t.message
			for j := range seen {
				if seen[j].kind == t.kind && seen[j].status == t.status && seen[j].reason == t.reason {
					seen[j].message += ", " + said
					merged[j].(map[string]any)["message"] = seen[j].message
					continue next
				}
			}
			condition = maps.Clone(condition)
			condition["message"] = said
			t.message = said
			seen, merged = append(seen, t), append(merged, condition)
		}
	}
	return merged, nil
}
