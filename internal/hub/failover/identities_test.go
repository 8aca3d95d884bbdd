package failover

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

func TestDifferences(t *testing.T) {
	topology := &v1alpha1.CellTopologySpec{Cells: []v1alpha1.TopologyCell{
		{Name: "normal", State: v1alpha1.CellStateNormal}, {Name: "joining", State: v1alpha1.CellStateIn},
		{Name: "leaving", State: v1alpha1.CellStateOut}, {Name: "failed", State: v1alpha1.CellStateFailed},
		{Name: "returning", State: v1alpha1.CellStateIn},
	}}
	var cells []v1alpha1.Cell
	for _, name := range []string{"normal", "joining", "leaving", "failed", "left"} {
		cells = append(cells, v1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	cells = append(cells, v1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: "returning"}, Status: v1alpha1.CellStatus{
		Conditions: []metav1.Condition{{Type: names.CellFenced, Status: metav1.ConditionTrue, Reason: reasonFenced}},
	}})
	member := func(name string) clusterv1alpha1.Cluster {
		return clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	pulls, goes := member("pulls"), member("goes")
	pulls.Spec.SyncMode = clusterv1alpha1.Pull
	goes.DeletionTimestamp = &metav1.Time{}
	members := []clusterv1alpha1.Cluster{member("m"), member("foreign"), pulls, goes}
	for _, test := range []struct {
		name    string
		present []string
		want    []difference
	}{
		{"nothing to do", []string{"m.hub", "m.normal", "m.joining", "m.leaving"}, nil},
		{"a member was unreachable when a cell joined", []string{"m.hub", "m.normal", "m.leaving"}, []difference{{"m", "joining", true}}},
		{"a cell has left", []string{"m.hub", "m.normal", "m.joining", "m.leaving", "m.left"}, []difference{{"m", "left", false}}},
		{"a cell that returns waits until it is empty", []string{"m.hub", "m.normal", "m.leaving", "m.joining"}, nil},
		{"a failed cell is left out", []string{"m.hub", "m.normal", "m.joining", "m.leaving", "m.failed"}, nil},
		{"a cluster that is only about to join", []string{"m.normal"}, nil},
		{"clusters that pull or are deleted", []string{"pulls.hub", "goes.hub", "pulls.left", "goes.left"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			present := map[string]bool{}
			for _, name := range test.present {
				present[name] = true
			}
			if got := differences(topology, cells, members, present); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
