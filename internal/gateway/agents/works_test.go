package agents

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
)

// TestWorks checks which changes of Works reach an API server, and in which form.
func TestWorks(t *testing.T) {
	agent := &user.DefaultInfo{Name: "system:karmada:agent:m1", Groups: []string{names.AgentsGroup}}
	engine := &user.DefaultInfo{Name: "system:cellplane:engine:a"}
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	const (
		work    = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works/web-1"
		merge   = "application/merge-patch+json"
		release = `{"metadata":{"finalizers":[],"resourceVersion":"7"}}`
		binding = `{"metadata":{"annotations":{"resourcebinding.karmada.io/name":"other-deployment"}}}`
	)
	for _, test := range []struct {
		what                      string
		user                      user.Info
		method, path, media, body string
		want                      string // what is served; "" if it is refused
	}{
		{"an agent releases a Work", agent, "PATCH", work, merge, release, release},
		{"with parameters in the media type", agent, "PATCH", work, merge + "; charset=utf-8", release, release},
		{"an agent names another binding", agent, "PATCH", work, merge, binding, ""},
		{"beside the finalizers", agent, "PATCH", work, merge, `{"metadata":{"finalizers":[],"annotations":{"a":"b"}}}`, ""},
		{"in a field that is there twice", agent, "PATCH", work, merge, `{"metadata":{"annotations":{"a":"b"}},"metadata":{"finalizers":[]}}`, ""},
		{"in a field whose name is written differently", agent, "PATCH", work, merge, `{"metadata":{"finalizers":[],"Annotations":{"a":"b"}}}`, ""},
		{"an agent keeps a finalizer of somebody else", agent, "PATCH", work, merge, `{"metadata":{"finalizers":["example.io/kept"]}}`, `{"metadata":{"finalizers":["example.io/kept"]}}`},
		{"an agent adds a finalizer", agent, "PATCH", work, merge, `{"metadata":{"finalizers":["example.io/kept","example.io/mine"]}}`, ""},
		{"an agent says nothing about finalizers", agent, "PATCH", work, merge, `{"metadata":{"resourceVersion":"7"}}`, ""},
		{"an agent changes labels", agent, "PATCH", work, merge, `{"metadata":{"labels":{"a":"b"}}}`, ""},
		{"an agent changes the spec", agent, "PATCH", work, merge, `{"spec":{"suspendDispatching":true}}`, ""},
		{"an agent changes both", agent, "PATCH", work, merge, `{"metadata":{"finalizers":[]},"spec":{}}`, ""},
		{"an agent removes the metadata", agent, "PATCH", work, merge, `{"metadata":null}`, ""},
		{"by a JSON patch", agent, "PATCH", work, "application/json-patch+json", `[{"op":"replace","path":"/metadata/finalizers","value":[]}]`, ""},
		{"by an apply", agent, "PATCH", work, "application/apply-patch+yaml", release, ""},
		{"by an update", agent, "PUT", work, "application/json", release, ""},
		{"an agent reports", agent, "PUT", work + "/status", "application/json", binding, binding},
		{"an agent changes its Cluster's status", agent, "PATCH", "/apis/cluster.karmada.io/v1alpha1/clusters/m1/status", merge, `{"status":{}}`, `{"status":{}}`},
		{"an engine changes a Work", engine, "PATCH", work, merge, binding, binding},
	} {
		served := ""
		handler := &Works{Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = w.Write([]byte(`{"metadata":{"finalizers":["karmada.io/execution-controller","example.io/kept"]}}`))
				return
			}
			body, err := io.ReadAll(r.Body)
			if err != nil || r.ContentLength != int64(len(body)) {
				t.Errorf("%s: a body of %d bytes is announced as %d, %v", test.what, len(body), r.ContentLength, err)
			}
			served = string(body)
		})}
		r := httptest.NewRequestWithContext(t.Context(), test.method, test.path, strings.NewReader(test.body))
		r.Header.Set("Content-Type", test.media)
		info, err := resolver.NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, r.WithContext(request.WithUser(request.WithRequestInfo(r.Context(), info), test.user)))
		if served != test.want || (answer.Code == http.StatusForbidden) != (test.want == "") {
			t.Errorf("%s: answered %d, and served %q, want %q", test.what, answer.Code, served, test.want)
		}
	}
}
