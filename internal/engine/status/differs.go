package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/execution"
)

// comparisonChanged reports whether the status of a Work does not tell yet how its objects differ.
func comparisonChanged(work *cell.Work, report *execution.Report) bool {
	told := work.Conditions.Find(names.Differs)
	switch {
	case !work.ReportOnly:
		return told != nil
	case report.Comparison == nil:
		return false
	default:
		wanted := report.Comparison.Condition(work.Generation)
		return told == nil || told.Status != wanted.Status || told.Message != wanted.Message || told.ObservedGeneration != wanted.ObservedGeneration
	}
}

// setComparison sets the condition Differs of a Work, or removes it if its objects are written. What is not known stays as it was.
func setComparison(conditions *[]metav1.Condition, work *cell.Work, report *execution.Report, now time.Time) {
	switch {
	case !work.ReportOnly:
		meta.RemoveStatusCondition(conditions, names.Differs)
	case report.Comparison != nil:
		condition := report.Comparison.Condition(work.Generation)
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(conditions, condition)
	}
}

// differing describes how the copies of a template differ, for those that the engine only reports about.
type differing struct {
	differ, unknown  []string // a sentence each
	agree            int
	waiting, applies bool // a copy was not compared yet; some are only reported about
}

func (d *differing) add(work *cell.Work, report *execution.Report) {
	if !work.ReportOnly {
		return
	}
	d.applies = true
	comparison := report.Comparison
	if comparison == nil {
		d.waiting = true
		return
	}
	sentence := fmt.Sprintf("cluster %s: %s", work.Cluster, cut(comparison.FirstLine()))
	switch comparison.Status {
	case metav1.ConditionTrue:
		d.differ = append(d.differ, sentence)
	case metav1.ConditionFalse:
		d.agree++
	default:
		d.unknown = append(d.unknown, sentence)
	}
}

// cut shortens a sentence, so that several of them fit into a message.
func cut(sentence string) string {
	const most = 400
	if len(sentence) <= most {
		return sentence
	}
	return strings.ToValidUTF8(sentence[:most], "") + "..."
}

// condition returns the condition Differs of a binding, nil if all copies are written, or not all are compared yet. It has no values: more people read bindings than Works.
func (d *differing) condition() *metav1.Condition {
	if !d.applies || d.waiting {
		return nil
	}
	condition := &metav1.Condition{
		Type: names.Differs, Status: metav1.ConditionFalse, Reason: names.ReasonWouldNotChange, Message: "The federation would change nothing in the member clusters",
	}
	sentences := slices.Concat(d.differ, d.unknown)
	switch {
	case len(d.differ) > 0:
		condition.Status, condition.Reason = metav1.ConditionTrue, names.ReasonWouldChange
	case len(d.unknown) > 0:
		condition.Status, condition.Reason = metav1.ConditionUnknown, names.ReasonNotCompared
	default:
		return condition
	}
	if more := len(sentences) - mostNamed; more > 0 {
		sentences = append(sentences[:mostNamed], fmt.Sprintf("and %d more", more))
	}
	if condition.Message = strings.Join(sentences, "; "); d.agree > 0 {
		condition.Message += fmt.Sprintf("; nothing would change in %d more clusters", d.agree)
	}
	return condition
}

// set sets the condition, or removes it if all copies are written. It stays as it was until all copies are compared.
func (d *differing) set(conditions *[]metav1.Condition, now time.Time) {
	if !d.applies {
		meta.RemoveStatusCondition(conditions, names.Differs)
		return
	}
	if condition := d.condition(); condition != nil {
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(conditions, *condition)
	}
}

// news reports whether conditions do not tell yet how the copies differ.
func (d *differing) news(conditions []metav1.Condition) bool {
	told := meta.FindStatusCondition(conditions, names.Differs)
	if !d.applies {
		return told != nil
	}
	wanted := d.condition()
	return wanted != nil && (told == nil || told.Status != wanted.Status || told.Message != wanted.Message)
}
