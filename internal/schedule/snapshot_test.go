package schedule

import (
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// TestSnapshotUpdate replaces, adds and removes clusters.
func TestSnapshotUpdate(t *testing.T) {
	a, b, c := parseCluster(t, "a pods=10"), parseCluster(t, "b pods=10"), parseCluster(t, "c pods=10")
	snapshot := Compile([]*clusterv1alpha1.Cluster{c, a})
	request := Request{Spec: &workv1alpha2.ResourceBindingSpec{
		Resource: workv1alpha2.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment"}, Replicas: 20,
	}}
	steps := []struct {
		clusters []*clusterv1alpha1.Cluster
		want     []workv1alpha2.TargetCluster
	}{
		{[]*clusterv1alpha1.Cluster{c, a}, []workv1alpha2.TargetCluster{{Name: "a", Replicas: 20}, {Name: "c", Replicas: 20}}},
		{[]*clusterv1alpha1.Cluster{c, b, a}, []workv1alpha2.TargetCluster{{Name: "a", Replicas: 20}, {Name: "b", Replicas: 20}, {Name: "c", Replicas: 20}}},
		{[]*clusterv1alpha1.Cluster{parseCluster(t, "a taint=full:NoSchedule"), c}, []workv1alpha2.TargetCluster{{Name: "c", Replicas: 20}}},
		{[]*clusterv1alpha1.Cluster{b, parseCluster(t, "c serves=Job")}, []workv1alpha2.TargetCluster{{Name: "b", Replicas: 20}}},
	}
	for i, step := range steps {
		snapshot = snapshot.Update(step.clusters)
		request.Snapshot = snapshot
		result, err := Plan(request, nil)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if diff := cmp.Diff(step.want, result.Clusters); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
	}
}

// TestGeneral checks the general estimator by itself.
func TestGeneral(t *testing.T) {
	cluster := parseCluster(t, "a pods=10 cpu=4")
	request := benchRequest(nil)
	request.Spec.ReplicaRequirements = nil
	if got := General(cluster, request.Spec); got != 10 {
		t.Errorf("capacity for %d pods, want 10", got)
	}
	parseArgument(t, &request, datadriven.CmdArg{Key: "cpu", Vals: []string{"500m"}})
	if got := General(cluster, request.Spec); got != 8 {
		t.Errorf("capacity for %d replicas, want 8", got)
	}
	parseArgument(t, &request, datadriven.CmdArg{Key: "component", Vals: []string{"one:1:1"}})
	parseArgument(t, &request, datadriven.CmdArg{Key: "component", Vals: []string{"two:2:500m"}})
	if got := General(cluster, request.Spec); got != 2 {
		t.Errorf("capacity for %d sets, want 2", got)
	}
}
