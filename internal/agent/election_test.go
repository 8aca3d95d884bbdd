package agent

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestEnsureNamespace checks that an agent creates the namespace of its Lease only where there is none: with fewer rights, it is there.
func TestEnsureNamespace(t *testing.T) {
	for _, c := range []struct {
		code    int
		reason  metav1.StatusReason
		creates bool
	}{
		{http.StatusForbidden, metav1.StatusReasonForbidden, false},
		{http.StatusOK, "", false},
		{http.StatusNotFound, metav1.StatusReasonNotFound, true},
	} {
		created := false
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodPost {
				created = true
				_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "Namespace"}`))
				return
			}
			w.WriteHeader(c.code)
			if c.reason == "" {
				_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "Namespace"}`))
				return
			}
			_ = json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: c.reason, Code: int32(c.code),
			})
		}))
		client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := ensureNamespace(t.Context(), client); err != nil || created != c.creates {
			t.Errorf("%d: created %t, %v", c.code, created, err)
		}
		server.Close()
	}
}
