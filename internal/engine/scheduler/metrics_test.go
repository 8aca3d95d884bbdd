package scheduler

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/schedule"
	"github.com/cellplane/cellplane/internal/testenv"
)

// values returns the values of a metric by its labels; of a histogram, the number of observations.
func values(t *testing.T, metric string, collectors ...prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, sample := range family.GetMetric() {
			if family.GetName() != metric {
				continue
			}
			labels := ""
			for _, label := range sample.GetLabel() {
				labels += " " + label.GetValue()
			}
			all[labels] = sample.GetCounter().GetValue() + sample.GetGauge().GetValue() + float64(sample.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// TestPendingBindings counts bindings by why they are not scheduled yet.
func TestPendingBindings(t *testing.T) {
	s := New(newCell(t), nil, Options{})
	for name, outcome := range map[string]Outcome{
		"full":      {Failure: &schedule.Failure{Reason: names.ReasonUnschedulable}},
		"fuller":    {Failure: &schedule.Failure{Reason: names.ReasonNoClusterFit}},
		"contended": {Failure: &schedule.Failure{Reason: names.ReasonUnschedulable}, retryAfter: time.Second},
		"stranded":  {stranded: true},
		"placed":    {},
	} {
		s.record(&workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}, &decision{Outcome: outcome})
	}
	s.Enqueue(cell.Key{Namespace: "ns", Name: "new"})
	want := map[string]float64{" active": 1, " backoff": 1, " unschedulable": 2}
	testenv.Eventually(t, "the bindings are counted", func(context.Context) (bool, error) {
		got := values(t, "scheduler_pending_bindings", s)
		return maps.Equal(got, want), fmt.Errorf("got %v, want %v", got, want)
	})
}

// TestAttempts counts attempts by result and reason, and leaves out those in which nothing was decided.
func TestAttempts(t *testing.T) {
	const metric = "karmada_scheduler_schedule_attempts_total"
	failure := Outcome{Failure: &schedule.Failure{Reason: names.ReasonUnschedulable}}
	for _, c := range []struct {
		name     string
		decision decision
		want     string
	}{
		{"placed", decision{made: true}, " scheduled ReconcileSchedule"},
		{"scaled", decision{made: true, scaled: true}, " scheduled ScaleSchedule"},
		{"no room", decision{Outcome: failure}, " error ReconcileSchedule"},
		{"no room for more", decision{Outcome: failure, scaled: true}, " error ScaleSchedule"},
		{"still no room", decision{Outcome: failure, repeated: true}, ""},
		{"nothing to do", decision{}, ""},
	} {
		before := values(t, metric, Collectors()...)
		c.decision.observe(time.Now())
		after := values(t, metric, Collectors()...)
		if c.want != "" {
			before[c.want]++
		}
		if !maps.Equal(before, after) {
			t.Errorf("%s: got %v, want %v", c.name, after, before)
		}
		if got := values(t, "karmada_scheduler_e2e_scheduling_duration_seconds", Collectors()...); !maps.Equal(got, after) {
			t.Errorf("%s: %v durations were observed for %v attempts", c.name, got, after)
		}
	}
}
