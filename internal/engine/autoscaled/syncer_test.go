package autoscaled

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// TestRunning sums up replicas only if all chosen clusters have reported about the present template.
func TestRunning(t *testing.T) {
	item := func(cluster, status string, applied bool) workv1alpha2.AggregatedStatusItem {
		item := workv1alpha2.AggregatedStatusItem{ClusterName: cluster, Applied: applied}
		if status != "" {
			item.Status = &runtime.RawExtension{Raw: []byte(status)}
		}
		return item
	}
	const fresh = `{"replicas":3,"generation":4,"observedGeneration":4,"resourceTemplateGeneration":7}`
	for _, test := range []struct {
		name  string
		items []workv1alpha2.AggregatedStatusItem
		sum   int64
		known bool
	}{
		{"all report", []workv1alpha2.AggregatedStatusItem{item("b", fresh, true), item("a", fresh, true)}, 6, true},
		{"one that was left counts no more", []workv1alpha2.AggregatedStatusItem{item("a", fresh, true), item("b", fresh, true), item("c", fresh, true)}, 6, true},
		{"one is missing", []workv1alpha2.AggregatedStatusItem{item("a", fresh, true)}, 0, false},
		{"one has no status", []workv1alpha2.AggregatedStatusItem{item("a", fresh, true), item("b", "", true)}, 0, false},
		{"one could not be applied", []workv1alpha2.AggregatedStatusItem{item("a", fresh, true), item("b", fresh, false)}, 0, false},
		{"one is about an older template", []workv1alpha2.AggregatedStatusItem{item("a", fresh, true), item("b", `{"replicas":3,"resourceTemplateGeneration":6}`, true)}, 0, false},
		{"one has not observed its copy", []workv1alpha2.AggregatedStatusItem{item("a", fresh, true), item("b", `{"replicas":3,"generation":5,"observedGeneration":4,"resourceTemplateGeneration":7}`, true)}, 0, false},
	} {
		binding := &workv1alpha2.ResourceBinding{}
		binding.Spec.Clusters = []workv1alpha2.TargetCluster{{Name: "a"}, {Name: "b"}}
		binding.Status.AggregatedStatus = test.items
		if sum, known := running(binding, 7); sum != test.sum || known != test.known {
			t.Errorf("%s: got %d, %v", test.name, sum, known)
		}
	}
}

// TestSettle waits until a sum has stayed the same.
func TestSettle(t *testing.T) {
	now := time.Unix(0, 0)
	s := &Syncer{now: func() time.Time { return now }, settles: map[cell.TemplateKey]reading{}}
	for i, step := range []struct {
		after time.Duration
		sum   int64
		wait  time.Duration
	}{{0, 3, settleTime}, {time.Second, 3, settleTime - time.Second}, {time.Second, 4, settleTime}, {settleTime, 4, 0}} {
		now = now.Add(step.after)
		if wait := s.settle(cell.TemplateKey{}, step.sum); wait != step.wait {
			t.Errorf("step %d: wait %s, want %s", i, wait, step.wait)
		}
	}
}
