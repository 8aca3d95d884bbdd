package clusterstatus

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// If discovery of a ready member fails, the known APIs are kept: workloads stay where they are.
func TestNoWordAboutAPIs(t *testing.T) {
	var failing atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := map[string]string{
			"/api":    `{"kind":"APIVersions","versions":["v1"]}`,
			"/apis":   `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
			"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","kind":"Pod"},{"name":"pods/log","kind":"Pod"},{"name":"nodes","kind":"Node"}]}`,
		}[r.URL.Path]
		if failing.Load() || !known {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	found, err := newAPIs(&rest.Config{Host: server.URL}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	cluster := &clusterv1alpha1.Cluster{}
	want := []clusterv1alpha1.APIEnablement{{GroupVersion: "v1", Resources: []clusterv1alpha1.APIResource{{Name: "nodes", Kind: "Node"}, {Name: "pods", Kind: "Pod"}}}}
	for _, step := range []struct {
		failing bool
		status  metav1.ConditionStatus
		reason  string
	}{
		{false, metav1.ConditionTrue, "FullAPIEnablements"},
		{true, metav1.ConditionFalse, "EmptyAPIEnablements"},
		{false, metav1.ConditionTrue, "FullAPIEnablements"},
	} {
		failing.Store(step.failing)
		var f findings
		f.apis, f.complete = found.refresh(t.Context())
		f.writeTo(cluster)
		if diff := cmp.Diff(want, cluster.Status.APIEnablements); diff != "" {
			t.Errorf("failing: %v, -want +got:\n%s", step.failing, diff)
		}
		condition := meta.FindStatusCondition(cluster.Status.Conditions, names.ClusterCompleteAPIEnablements)
		if condition == nil || condition.Status != step.status || condition.Reason != step.reason {
			t.Errorf("failing: %v, the condition is %+v", step.failing, condition)
		}
	}
}
