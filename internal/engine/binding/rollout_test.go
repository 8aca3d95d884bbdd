package binding

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/execution"
)

// Only a template that no cluster was ever told about is written at once.
func TestUntouched(t *testing.T) {
	suspended := &cell.Work{Cluster: "a", Suspended: true}
	applied := &cell.Work{Cluster: "b", Suspended: true, Conditions: cell.CompactConditions([]metav1.Condition{{Type: names.WorkApplied, Status: metav1.ConditionTrue}})}
	seen := &cell.Work{Cluster: "seen", Suspended: true}
	controller := &Controller{report: func(w *cell.Work) execution.Report {
		if w == seen {
			return execution.Report{Objects: []*execution.Observed{{}}}
		}
		return execution.Report{Objects: []*execution.Observed{nil}}
	}}
	for name, test := range map[string]struct {
		template cell.Template
		stored   bool
		unread   []string
		works    []*cell.Work
		want     bool
	}{
		"without Works":                 {template: cell.Template{Suspended: true}, want: true},
		"suspended from the start":      {template: cell.Template{Suspended: true}, works: []*cell.Work{suspended}, want: true},
		"with a cluster that is away":   {template: cell.Template{Suspended: true}, unread: []string{"b"}, works: []*cell.Work{suspended}},
		"only reported about":           {template: cell.Template{Dispatching: names.DispatchingReportOnly}, works: []*cell.Work{suspended}, want: true},
		"not suspended":                 {works: []*cell.Work{suspended}},
		"with a ledger":                 {template: cell.Template{Suspended: true}, stored: true, works: []*cell.Work{suspended}},
		"not suspended in a cluster":    {template: cell.Template{Suspended: true}, works: []*cell.Work{suspended, {Cluster: "b"}}},
		"seen in a cluster":             {template: cell.Template{Suspended: true}, works: []*cell.Work{suspended, seen}},
		"applied before its suspension": {template: cell.Template{Suspended: true}, works: []*cell.Work{suspended, applied}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rolling{b: controller, t: &test.template, binding: &workv1alpha2.ResourceBinding{}, stored: test.stored, unread: test.unread}
			if got := r.untouched(test.works); got != test.want {
				t.Errorf("untouched() = %v, want %v", got, test.want)
			}
		})
	}
}
