package ledger

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// TestSets counts how many sets fit three nodes with 4 CPUs and one with 2.
func TestSets(t *testing.T) {
	l := &cellplanev1alpha1.ClusterLedger{ObjectMeta: metav1.ObjectMeta{Name: "member"}, Classes: []cellplanev1alpha1.LedgerNodeClass{
		{Name: "large", Allocatable: cpus(4), Nodes: []cellplanev1alpha1.LedgerNodes{{Count: 3, Free: cpus(4)}}},
		{Name: "small", Allocatable: cpus(2), Nodes: []cellplanev1alpha1.LedgerNodes{{Count: 1, Free: cpus(2)}}},
	}}
	component := func(replicas int32, asks int) workv1alpha2.Component {
		return workv1alpha2.Component{Replicas: replicas, ReplicaRequirements: &workv1alpha2.ComponentReplicaRequirements{ResourceRequest: cpus(asks)}}
	}
	for _, test := range []struct {
		name       string
		components []workv1alpha2.Component
		want       int32
	}{
		{"one of each", []workv1alpha2.Component{component(1, 1), component(1, 1)}, 7},
		{"components compete", []workv1alpha2.Component{component(1, 2), component(2, 3)}, 1},
		{"enough in sum, but not on any node", []workv1alpha2.Component{component(1, 1), component(1, 5)}, 0},
		{"one component has too many replicas", []workv1alpha2.Component{component(1, 1), component(4, 3)}, 0},
		{"component without replicas", []workv1alpha2.Component{component(1, 2), component(0, 5)}, 7},
	} {
		t.Run(test.name, func(t *testing.T) {
			account := Open(l, nil, time.Now())
			// A binding with components has no requirements of its own.
			free, growth := Estimators(func(string) *Account { return account }, onePod(t))
			cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "member"}}
			spec := &workv1alpha2.ResourceBindingSpec{Components: test.components}
			if got := free(cluster, spec); got != test.want || growth(cluster, spec) != 0 {
				t.Errorf("capacity for %d, of which %d by growth, want %d", got, growth(cluster, spec), test.want)
			}
		})
	}
}
