package fleet_test

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/fleet"
)

// A member that does not answer the discovery of one group does not block callers that need another, and callers wait only
// until their contexts end.
func TestSlowDiscovery(t *testing.T) {
	asked, end := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis/slow.example.com/v1" {
			asked <- struct{}{}
			<-end
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [{"name": "pods", "kind": "Pod", "namespaced": true}]}`))
	}))
	defer server.Close()
	defer close(end)
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "member1"}, Spec: clusterv1alpha1.ClusterSpec{APIEndpoint: server.URL}}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	secret := &corev1.Secret{Data: map[string][]byte{fleet.MemberTokenKey: []byte("token"), fleet.MemberCAKey: authority}}
	member, err := fleet.OpenMember(t.Context(), cluster, secret)
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	pods, slow := corev1.SchemeGroupVersion.WithKind("Pod"), schema.GroupVersionKind{Group: "slow.example.com", Version: "v1", Kind: "Slow"}
	if _, served, err := member.Resource(t.Context(), pods, "ns"); err != nil || served.Resource.Resource != "pods" || !served.Namespaced {
		t.Fatalf("pods are served as %v: %v", served, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiting := make(chan error, 2)
	for range 2 {
		go func() {
			_, _, err := member.Resource(ctx, slow, "ns")
			waiting <- err
		}()
	}
	<-asked
	if _, _, err := member.Resource(t.Context(), pods, "ns"); err != nil {
		t.Error(err)
	}
	select {
	case err := <-waiting:
		t.Errorf("the request for pods was answered only after the other: %v", err)
	default:
	}
	cancel()
	for range 2 {
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled caller got %v", err)
		}
	}
}
