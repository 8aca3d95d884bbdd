package binding

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

func TestWaiting(t *testing.T) {
	w := &waitingRollouts{cells: map[string]map[cell.Key]time.Time{"a": {}}}
	// expect checks how many rollouts wait, and for how many hours the longest has done so.
	expect := func(count, hours int) {
		t.Helper()
		registry := prometheus.NewRegistry()
		registry.MustRegister(w)
		families, err := registry.Gather()
		if err != nil || len(families) != 2 {
			t.Fatal(families, err)
		}
		value := func(family *dto.MetricFamily) float64 { return family.GetMetric()[0].GetGauge().GetValue() }
		if longest := value(families[0]) / 3600; int(longest) != hours || int(value(families[1])) != count {
			t.Errorf("%v wait, at most for %v h; want %d, %d h", value(families[1]), longest, count, hours)
		}
	}
	noted := func(ledger, waits string) *workv1alpha2.ResourceBinding {
		b := &workv1alpha2.ResourceBinding{}
		b.Annotations = map[string]string{names.RolloutAnnotation: ledger, names.RolloutWaitsAnnotation: waits}
		return b
	}
	ago := func(hours int) time.Time { return time.Now().Add(-time.Duration(hours)*time.Hour - time.Minute) }
	one, other := cell.Key{Namespace: "ns", Name: "one"}, cell.Key{Namespace: "ns", Name: "other"}
	expect(0, 0)
	w.changed("a", one, nil, noted("1", "m1"), ago(9))
	w.changed("a", other, nil, noted("1", ""), ago(9))
	expect(1, 9)
	w.changed("a", one, noted("1", "m1"), noted("1", "m1"), ago(8)) // something else
	expect(1, 9)
	w.changed("a", one, noted("1", "m1"), noted("2", "m1"), ago(7)) // a command
	expect(1, 7)
	w.changed("a", other, noted("1", ""), noted("2", "m2"), ago(5))
	expect(2, 7)
	w.changed("a", one, noted("2", "m1"), noted("2", ""), ago(4))
	expect(1, 5)
	w.changed("a", other, noted("2", "m2"), nil, ago(3))
	expect(0, 0)
}
