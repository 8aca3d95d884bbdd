package execution

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/fleet"
)

// If only an aggregated API of a member is unavailable, the Work is retried and the member still counts as reachable.
func TestUnavailableAggregatedAPI(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "member1"}, Spec: clusterv1alpha1.ClusterSpec{APIEndpoint: server.URL}}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	member, err := fleet.OpenMember(t.Context(), cluster, &corev1.Secret{Data: map[string][]byte{fleet.MemberTokenKey: []byte("token"), fleet.MemberCAKey: authority}})
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	q := newTestQueue(t, &fakeInterpreter{})
	q.member, q.problem = member, nil
	key := cell.Key{Namespace: "karmada-es-member1", Name: "w"}
	manifest := `{"apiVersion": "elsewhere.example.com/v1", "kind": "Thing", "metadata": {"namespace": "ns", "name": "t"}}`
	q.e.cell.Works.Set(&workv1alpha1.Work{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "uid", ResourceVersion: "5", Generation: 1},
		Spec:       workv1alpha1.WorkSpec{Workload: workv1alpha1.WorkloadTemplate{Manifests: []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(manifest)}}}}},
	})
	if err := q.reconcile(t.Context(), key); err == nil {
		t.Error("the Work is not retried")
	}
	if member.Broken() != nil {
		t.Errorf("the member counts as unreachable: %v", member.Broken())
	}
	if outcome, known := q.e.outcomes.get(key); !known || outcome.Applied || outcome.Message == "" {
		t.Errorf("the failure is not reported: %+v", outcome)
	}
}
