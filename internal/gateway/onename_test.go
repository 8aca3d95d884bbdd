package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
)

// testOneName creates objects from bodies with several names. They must be stored under the name that API servers read, or refused.
func testOneName(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "one-name")
	path := "/api/v1/namespaces/" + namespace + "/configmaps"
	maps := w.client.CoreV1().ConfigMaps(namespace)
	for i := range 12 { // some names belong to each cell
		name := fmt.Sprintf("map-%d", i)
		body := strings.NewReader(fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"Name":"other"},"Metadata":{"name":"third"}}`, name))
		response := w.do(t, http.MethodPost, path, nil, http.Header{"Content-Type": {"application/json"}}, body)
		if response.StatusCode != http.StatusCreated {
			t.Fatalf("creating %s: %s", name, response.Status)
		}
		if _, err := maps.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	if list, err := maps.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 12 {
		t.Errorf("%d of 12 are listed: %v", len(list.Items), err)
	}
	body := strings.NewReader(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","name":"two"}}`)
	if response := w.do(t, http.MethodPost, path, nil, http.Header{"Content-Type": {"application/json"}}, body); response.StatusCode != http.StatusBadRequest {
		t.Errorf("an object with a name twice: %s", response.Status)
	}
}
