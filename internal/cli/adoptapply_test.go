package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// What an earlier attempt has created is read as it is, without anything of what was sent now: a suspension that somebody has lifted is not there.
func TestCreateOrGetReadsWhatIsThere(t *testing.T) {
	policy := func() *policyv1alpha1.PropagationPolicy {
		p := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		p.APIVersion, p.Kind = policyv1alpha1.GroupVersion.String(), "PropagationPolicy"
		return p
	}
	there := policy()
	there.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment", Name: "there"}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any = there
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusConflict)
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonAlreadyExists, Code: http.StatusConflict}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(policyv1alpha1.GroupVersion.WithKind("PropagationPolicy"), meta.RESTScopeNamespace)
	federation, err := client.New(&rest.Config{Host: server.URL}, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}

	sent := policy()
	sent.Spec.Suspension = &policyv1alpha1.Suspension{Dispatching: ptr.To(true)}
	sent.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment", Name: "sent", Namespace: "sent"}}
	selectors := sent.Spec.ResourceSelectors
	found, err := (&adoption{client: federation}).createOrGet(t.Context(), sent)
	if err != nil || !found {
		t.Fatalf("found %t, error %v", found, err)
	}
	if diff := cmp.Diff(there.Spec, sent.Spec); diff != "" {
		t.Errorf("it was not read as it is (-there +read):\n%s", diff)
	}
	if selectors[0].Name != "sent" {
		t.Errorf("reading it has changed what was sent: %+v", selectors)
	}
}
