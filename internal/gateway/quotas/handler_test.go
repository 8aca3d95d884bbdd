package quotas

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// TestUnknownExistence sends requests that may create an object while nobody can tell whether it exists.
func TestUnknownExistence(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: listOf("configmaps", "1")}}
	if err := indexer.Add(quota); err != nil {
		t.Fatal(err)
	}
	for verb, method := range map[string]string{"update": http.MethodPut, "patch": http.MethodPatch} {
		var written []string
		handler := &Handler{Quotas: corelisters.NewResourceQuotaLister(indexer), Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				forward.WriteError(w, r, apierrors.NewServiceUnavailable("its cell cannot be reached"))
				return
			}
			written = append(written, r.Method)
		})}
		r := httptest.NewRequestWithContext(t.Context(), method, "/api/v1/namespaces/team/configmaps/one", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/apply-patch+yaml")
		info := &request.RequestInfo{IsResourceRequest: true, Verb: verb, APIVersion: "v1", Namespace: "team", Resource: "configmaps", Name: "one"}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, r.WithContext(request.WithRequestInfo(r.Context(), info)))
		if answer.Code != http.StatusServiceUnavailable || len(written) != 0 {
			t.Errorf("%s: answered %d %s, and passed on %v", verb, answer.Code, answer.Body, written)
		}
	}
}
