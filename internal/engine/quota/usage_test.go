package quota

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cellstates"
)

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func TestUsage(t *testing.T) {
	divided := &workv1alpha2.ResourceBinding{Spec: workv1alpha2.ResourceBindingSpec{
		Replicas: 5, ReplicaRequirements: &workv1alpha2.ReplicaRequirements{ResourceRequest: list("cpu", "500m", "memory", "1Gi")},
		Clusters: []workv1alpha2.TargetCluster{{Name: "a", Replicas: 2}, {Name: "b", Replicas: 3}},
	}}
	sets := &workv1alpha2.ResourceBinding{Spec: workv1alpha2.ResourceBindingSpec{
		Components: []workv1alpha2.Component{
			{Name: "head", Replicas: 1, ReplicaRequirements: &workv1alpha2.ComponentReplicaRequirements{ResourceRequest: list("cpu", "1")}},
			{Name: "worker", Replicas: 3, ReplicaRequirements: &workv1alpha2.ComponentReplicaRequirements{ResourceRequest: list("cpu", "2")}},
		},
		Clusters: []workv1alpha2.TargetCluster{{Name: "a", Components: []workv1alpha2.TargetComponent{{Name: "head", Replicas: 1}, {Name: "worker", Replicas: 3}}}},
	}}
	moves, moved := divided.DeepCopy(), divided.DeepCopy()
	moves.Labels = map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrating}
	moved.Labels = map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrated}
	for _, test := range []struct {
		name    string
		binding *workv1alpha2.ResourceBinding
		want    corev1.ResourceList
	}{
		{"nothing", nil, nil},
		{"not placed", &workv1alpha2.ResourceBinding{}, nil},
		{"divided", divided, list("cpu", "2500m", "memory", "5Gi", "pods", "5")},
		{"it moves to or from another cell", moves, usageOf(divided)},
		{"it has moved to another cell", moved, nil},
		{"several components", sets, list("cpu", "7", "pods", "4")},
	} {
		if got := usageOf(test.binding); !same(got, test.want) {
			t.Errorf("%s: usage = %v, want %v", test.name, got, test.want)
		}
	}
	if got, want := within(usageOf(divided), list("requests.cpu", "10", "count/pods", "9", "services", "1")), list("requests.cpu", "2500m", "count/pods", "5"); !same(got, want) {
		t.Errorf("usage within the quota = %v, want %v", got, want)
	}
}

func TestExceeded(t *testing.T) {
	overall := list("cpu", "10", "memory", "10Gi")
	for _, test := range []struct {
		name                 string
		total, before, after corev1.ResourceList
		want                 string
	}{
		{"within", list("cpu", "10"), nil, list("cpu", "2"), ""},
		{"exceeded", list("cpu", "11"), nil, list("cpu", "2"), "FederatedResourceQuota(ns/team) exceeded for resource cpu: requested sum 11, limit 10."},
		{"exceeded twice", list("cpu", "11", "memory", "11Gi"), nil, list("cpu", "2", "memory", "1Gi"), "FederatedResourceQuota(ns/team) exceeded for resource cpu: requested sum 11, limit 10. " +
			"FederatedResourceQuota(ns/team) exceeded for resource memory: requested sum 11Gi, limit 10Gi."},
		{"exceeded, but reduced", list("cpu", "11"), list("cpu", "3"), list("cpu", "2"), ""},
		{"exceeded in a resource that does not grow", list("cpu", "11", "memory", "5Gi"), list("cpu", "2"), list("cpu", "2", "memory", "1Gi"), ""},
	} {
		if got := exceeded("ns/team", overall, test.total, test.before, test.after); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestRecord sums up the usage of cells, replaces a broken record, and does not write the same usage twice.
func TestRecord(t *testing.T) {
	quota := &policyv1alpha1.FederatedResourceQuota{}
	quota.Annotations = map[string]string{names.QuotaUsedAnnotation: "{"}
	for _, cell := range []string{"a", "b"} {
		if changed, err := set(quota, cell, list("cpu", "2")); err != nil || !changed {
			t.Fatalf("the usage was not set: %v", err)
		}
	}
	if changed, _ := set(quota, "b", list("cpu", "2000m", "memory", "0")); changed {
		t.Error("unchanged usage was set again")
	}
	if got := recordOf(quota).total("a"); !same(got, list("cpu", "2")) {
		t.Errorf("total of the other cells = %v", got)
	}
	if got := recordOf(quota).total(""); !same(got, list("cpu", "4")) {
		t.Errorf("total = %v", got)
	}
}

// TestMoveCounts checks that the usage is counted again when a binding has moved, which changes only a label.
func TestMoveCounts(t *testing.T) {
	binding := &workv1alpha2.ResourceBinding{}
	moved := &workv1alpha2.ResourceBinding{}
	moved.Labels = map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrated}
	if !changes(binding, moved) || !changes(moved, binding) || !changes(nil, binding) || !changes(binding, nil) {
		t.Error("a change is missed")
	}
	other := moved.DeepCopy()
	other.Annotations = map[string]string{"a": "b"}
	if changes(moved, other) {
		t.Error("an annotation changes the usage")
	}
}

// TestGone checks which entries of a record are removed.
func TestGone(t *testing.T) {
	topology := &cellplanev1alpha1.CellTopologySpec{Cells: []cellplanev1alpha1.TopologyCell{
		{Name: "normal", State: cellplanev1alpha1.CellStateNormal}, {Name: "leaving", State: cellplanev1alpha1.CellStateOut},
		{Name: "returning", State: cellplanev1alpha1.CellStateIn},
		{Name: "failed", State: cellplanev1alpha1.CellStateFailed}, {Name: "failing", State: cellplanev1alpha1.CellStateFailed},
	}}
	var cells []cellplanev1alpha1.Cell
	for name, status := range map[string]metav1.ConditionStatus{
		"normal": "", "leaving": "", "left": "", "returning": metav1.ConditionTrue, "failed": metav1.ConditionTrue, "failing": metav1.ConditionFalse,
	} {
		c := cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if status != "" {
			c.Status.Conditions = []metav1.Condition{{Type: names.CellPromoted, Status: status}}
		}
		cells = append(cells, c)
	}
	for _, test := range []struct {
		name  string
		in    []string
		want  []string
		waits bool
	}{
		{"cells of the topology", []string{"normal", "leaving", "returning"}, nil, false},
		{"a cell that was drained", []string{"normal", "left"}, []string{"left"}, false},
		{"a cell that was deleted", []string{"normal", "deleted"}, []string{"deleted"}, false},
		{"a cell that was taken over", []string{"normal", "failed"}, []string{"failed"}, false},
		{"a cell that is being taken over", []string{"normal", "failing"}, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			quota := &policyv1alpha1.FederatedResourceQuota{}
			for _, name := range test.in {
				if _, err := set(quota, name, list("cpu", "8")); err != nil {
					t.Fatal(err)
				}
			}
			gone, waits := recordOf(quota).gone(cellstates.Of(topology, cells))
			if !slices.Equal(gone, test.want) || waits != test.waits {
				t.Errorf("gone are %v, waits is %v; want %v, %v", gone, waits, test.want, test.waits)
			}
			if changed, err := drop(quota, gone); err != nil || changed != (len(test.want) > 0) {
				t.Errorf("changed is %v, error %v", changed, err)
			}
			if left := len(recordOf(quota)); left != len(test.in)-len(test.want) {
				t.Errorf("%d entries are left", left)
			}
		})
	}
}
