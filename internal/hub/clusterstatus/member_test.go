package clusterstatus

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/fleet"
)

// Without summaries, nodes and pods are not watched: that is most of the cost of a member.
func TestWithoutResources(t *testing.T) {
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Push, APIEndpoint: "https://127.0.0.1:1"}}
	connection, err := fleet.Connect(cluster, &corev1.Secret{Data: map[string][]byte{fleet.MemberTokenKey: []byte("t")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, without := range []bool{false, true} {
		m, err := openMember("a", "1", connection, Options{WithoutResources: without}.withDefaults(), func() {})
		if err != nil {
			t.Fatal(err)
		}
		if (m.ledger == nil) != without {
			t.Fatalf("without resources: %v, but the ledger is %v", without, m.ledger)
		}
		if without {
			m.watch(t.Context()) // returns at once
		}
	}
}
