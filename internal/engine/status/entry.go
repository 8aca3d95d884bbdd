package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/execution"
)

// open describes the copies that are out of the federation's hands.
type open struct {
	messages []string
	overdue  bool
}

func (o *open) add(cluster string, opened []execution.Opened, now time.Time) {
	for i := range opened {
		o.messages = append(o.messages, opened[i].Describe(cluster, now))
		o.overdue = o.overdue || opened[i].Overdue(now)
	}
}

// addReported adds what the agent of a cluster in pull mode reports about a Work.
func (o *open) addReported(work *cell.Work) {
	if !work.Pulled {
		return
	}
	if told := work.Conditions.Find(names.EntryOpen); told != nil && told.Status == metav1.ConditionTrue {
		o.messages = append(o.messages, strings.TrimSuffix(told.Message, notWritten))
		o.overdue = o.overdue || told.Reason == names.ReasonEntryOverdue
	}
}

// notWritten ends the message of the condition.
const notWritten = ". The federation does not write to it."

// mostNamed is how many copies a message names.
const mostNamed = 10

// condition returns the condition EntryOpen, nil if no copy is open.
func (o *open) condition(now time.Time) *metav1.Condition {
	if len(o.messages) == 0 {
		return nil
	}
	named := o.messages
	if len(named) > mostNamed {
		named = append(slices.Clone(named[:mostNamed]), fmt.Sprintf("and %d more", len(named)-mostNamed))
	}
	condition := &metav1.Condition{
		Type: names.EntryOpen, Status: metav1.ConditionTrue, Reason: names.ReasonEntryOpen, LastTransitionTime: metav1.NewTime(now),
		Message: strings.Join(named, "; ") + notWritten,
	}
	if o.overdue {
		condition.Reason = names.ReasonEntryOverdue
	}
	return condition
}

// set sets the condition, or removes it if no copy is open.
func (o *open) set(conditions *[]metav1.Condition, now time.Time) {
	if condition := o.condition(now); condition != nil {
		meta.SetStatusCondition(conditions, *condition)
		return
	}
	meta.RemoveStatusCondition(conditions, names.EntryOpen)
}

// news reports whether conditions do not tell yet which copies are open.
func (o *open) news(conditions []metav1.Condition, now time.Time) bool {
	told, wanted := meta.FindStatusCondition(conditions, names.EntryOpen), o.condition(now)
	if told == nil || wanted == nil {
		return told != nil || wanted != nil
	}
	return told.Message != wanted.Message || told.Reason != wanted.Reason
}

// withConditions are built-in kinds whose status has conditions of any type. Others do not tell which copies are open; their bindings do.
var withConditions = map[string]bool{"Deployment": true, "StatefulSet": true, "DaemonSet": true, "ReplicaSet": true}

// inTemplate returns a template with the condition in its status, or without. It returns the template itself if that is there already.
func (o *open) inTemplate(template *unstructured.Unstructured, now time.Time) (*unstructured.Unstructured, error) {
	if !withConditions[template.GetKind()] || template.GroupVersionKind().Group != "apps" {
		return template, nil
	}
	conditions, _, err := unstructured.NestedSlice(template.Object, "status", "conditions")
	if err != nil {
		return nil, err
	}
	before := slices.IndexFunc(conditions, func(condition any) bool {
		fields, _ := condition.(map[string]any)
		return fields["type"] == names.EntryOpen
	})
	wanted := o.condition(now)
	switch {
	case before < 0 && wanted == nil:
		return template, nil
	case wanted == nil:
		conditions = slices.Delete(conditions, before, before+1)
	default:
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wanted)
		if err != nil {
			return nil, err
		}
		if before < 0 {
			conditions = append(conditions, fields)
			break
		}
		told, _ := conditions[before].(map[string]any)
		if told["reason"] == wanted.Reason && told["message"] == wanted.Message {
			return template, nil
		}
		fields["lastTransitionTime"] = told["lastTransitionTime"]
		conditions[before] = fields
	}
	changed := template.DeepCopy()
	if len(conditions) == 0 {
		unstructured.RemoveNestedField(changed.Object, "status", "conditions")
		return changed, nil
	}
	return changed, unstructured.SetNestedSlice(changed.Object, conditions, "status", "conditions")
}
