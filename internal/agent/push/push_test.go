package push

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// item returns the metrics of a Deployment.
func item(name, cpu string) metricsv1alpha1.WorkloadMetrics {
	return metricsv1alpha1.WorkloadMetrics{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", UID: "u"},
		Workload:   metricsv1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
		Timestamp:  metav1.Now(), Pods: metricsv1alpha1.PodCounts{Total: 2, Ready: 2},
		Metrics: []metricsv1alpha1.MetricSums{{Resource: corev1.ResourceCPU, Timestamp: &metav1.Time{}, Measured: metricsv1alpha1.MeasuredPods{Pods: 2, Usage: resource.MustParse(cpu)}}},
	}
}

func scaled(m metricsv1alpha1.WorkloadMetrics) metricsv1alpha1.WorkloadMetrics {
	m.Labels = map[string]string{names.AutoscalerLabel: "true"}
	return m
}

// federation takes reports, and answers as it is told.
type federation struct {
	reports []string
	answers []any // an error, or a status; the last one holds
}

func (f *federation) take(_ context.Context, spec *metricsv1alpha1.MetricsReportSpec) (*metricsv1alpha1.MetricsReportStatus, error) {
	text := fmt.Sprintf("%d", spec.Sequence)
	if spec.Begin {
		text += " begin"
	}
	if len(spec.Items) > 3 {
		text += fmt.Sprintf(" %d", len(spec.Items))
	} else {
		for _, i := range spec.Items {
			text += " " + i.Workload.Name + "=" + i.Metrics[0].Measured.Usage.String()
		}
	}
	if len(spec.Removed) > 3 {
		text += fmt.Sprintf(" -%d", len(spec.Removed))
	} else {
		for _, r := range spec.Removed {
			text += " -" + r.Name
		}
	}
	if spec.End {
		text += " end"
	}
	f.reports = append(f.reports, text)
	if len(f.answers) == 0 {
		return &metricsv1alpha1.MetricsReportStatus{}, nil
	}
	answer := f.answers[0]
	f.answers = f.answers[1:]
	if err, failed := answer.(error); failed {
		return nil, err
	}
	status := answer.(metricsv1alpha1.MetricsReportStatus)
	return &status, nil
}

func TestReport(t *testing.T) {
	f := &federation{}
	r := New(f.take)
	lost := errors.New("lost")
	again := metricsv1alpha1.MetricsReportStatus{Resend: true}
	for _, step := range []struct {
		what    string
		items   []metricsv1alpha1.WorkloadMetrics
		answers []any
		reports string
		fails   bool
	}{
		{"the first report has everything", []metricsv1alpha1.WorkloadMetrics{item("b", "1"), item("a", "2")}, nil, "[1 begin a=2 b=1 end]", false},
		{"without a change it renews", []metricsv1alpha1.WorkloadMetrics{item("a", "2"), item("b", "1")}, nil, "[2]", false},
		{"noise is no change", []metricsv1alpha1.WorkloadMetrics{item("a", "2030m"), item("b", "1")}, nil, "[3]", false},
		{"noise adds up", []metricsv1alpha1.WorkloadMetrics{item("a", "2060m"), item("b", "1")}, nil, "[4 a=2060m]", false},
		{"an autoscaler needs it exactly", []metricsv1alpha1.WorkloadMetrics{scaled(item("a", "2060m")), item("b", "1")}, nil, "[5 a=2060m]", false},
		{"also if it changes little", []metricsv1alpha1.WorkloadMetrics{scaled(item("a", "2061m")), item("b", "1")}, nil, "[6 a=2061m]", false},
		{"a workload goes", []metricsv1alpha1.WorkloadMetrics{scaled(item("a", "2061m"))}, nil, "[7 -b]", false},
		{"the federation has lost everything", []metricsv1alpha1.WorkloadMetrics{scaled(item("a", "2061m"))}, []any{again}, "[8 9 begin a=2061m end]", false},
		{"a report is lost", []metricsv1alpha1.WorkloadMetrics{item("c", "1")}, []any{lost}, "[10 c=1 -a]", true},
		{"so everything follows", []metricsv1alpha1.WorkloadMetrics{item("c", "1")}, nil, "[11 begin c=1 end]", false},
		{"nothing is taken", []metricsv1alpha1.WorkloadMetrics{item("c", "1")}, []any{again, again}, "[12 13 begin c=1 end]", true},
		{"there are no workloads", nil, nil, "[14 begin end]", false},
		{"many workloads", many(2500), nil, "[15 1500 16 1000]", false},
		{"many at the start", many(2500), []any{again}, "[17 18 begin 1500 19 1000 end]", false},
		{"many go", nil, nil, "[20 -2500]", false},
	} {
		f.reports, f.answers = nil, step.answers
		err := r.Report(t.Context(), step.items)
		if got := fmt.Sprint(f.reports); got != step.reports || (err != nil) != step.fails {
			t.Errorf("%s: sent %s, want %s; error: %v", step.what, got, step.reports, err)
		}
	}
}

func many(n int) []metricsv1alpha1.WorkloadMetrics {
	var all []metricsv1alpha1.WorkloadMetrics
	for i := range n {
		all = append(all, item(fmt.Sprintf("w%04d", i), "1"))
	}
	return all
}

func TestWanted(t *testing.T) {
	f := &federation{answers: []any{metricsv1alpha1.MetricsReportStatus{Wanted: &metricsv1alpha1.WantedMetrics{Version: "1"}}}}
	r := New(f.take)
	if r.Wanted().Version != "" {
		t.Errorf("wanted at first: %+v", r.Wanted())
	}
	for range 2 { // the second answer says nothing new
		if err := r.Report(t.Context(), nil); err != nil || r.Wanted().Version != "1" {
			t.Errorf("wanted: %+v, %v", r.Wanted(), err)
		}
	}
}
