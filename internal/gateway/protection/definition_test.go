package protection

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// definitions are Objects with one definition.
type definitions struct {
	Objects
	data string
}

// Get implements Objects.
func (d *definitions) Get(context.Context, *request.RequestInfo) ([]byte, error) {
	return []byte(d.data), nil
}

// TestDefinitionOfPolicies checks that nobody changes what the policies say by their schema: a default of action could make all of them warn only.
func TestDefinitionOfPolicies(t *testing.T) {
	definition := func(group, schema, labels string) string {
		return `{"kind":"CustomResourceDefinition","metadata":{"name":"protectionpolicies.` + group + `","uid":"u","resourceVersion":"7"` + labels + `},"spec":{"group":"` + group +
			`","names":{"plural":"protectionpolicies","kind":"ProtectionPolicy"},"scope":"Cluster","versions":[{"name":"v1alpha1","served":true,"schema":` + schema + `}]}}`
	}
	const own, other, labelled = "cellplane.io", "example.io", `,"labels":{"a":"b"}`
	some := []*cellplanev1alpha1.ProtectionPolicy{{}}
	for _, test := range []struct {
		what          string
		group         string
		policies      []*cellplanev1alpha1.ProtectionPolicy
		schema, label string
		want          int
	}{
		{"another schema", own, some, `{"default":"Warn"}`, "", http.StatusForbidden},
		{"another schema while there are no policies", own, nil, `{"default":"Warn"}`, "", http.StatusOK},
		{"a label", own, some, `{}`, labelled, http.StatusOK},
		{"another schema of another definition", other, some, `{"default":"Warn"}`, "", http.StatusOK},
	} {
		after := definition(test.group, test.schema, test.label)
		changed := false
		guard := &Guard{Policies: &Policies{}, Objects: &definitions{data: definition(test.group, `{}`, "")}, Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			changed = changed || r.URL.Query().Get("dryRun") == ""
			_, _ = io.WriteString(w, after)
		})}
		guard.Policies.publish(test.policies)
		info := &request.RequestInfo{
			IsResourceRequest: true, Verb: "patch", APIPrefix: "apis", APIGroup: "apiextensions.k8s.io", APIVersion: "v1",
			Resource: "customresourcedefinitions", Name: "protectionpolicies." + test.group,
		}
		r := httptest.NewRequestWithContext(request.WithRequestInfo(t.Context(), info), http.MethodPatch, "/", strings.NewReader(`{"metadata":{}}`))
		r.Header.Set("Content-Type", "application/merge-patch+json")
		answer := httptest.NewRecorder()
		guard.ServeHTTP(answer, r)
		if answer.Code != test.want || changed != (test.want == http.StatusOK) {
			t.Errorf("%s: answered %d %s, changed %t", test.what, answer.Code, answer.Body, changed)
		}
	}
}
