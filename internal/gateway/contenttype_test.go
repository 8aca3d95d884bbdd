package gateway

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/creation"
)

// TestYAMLWithAliases sends YAML with aliases of a long text. As JSON it would need more memory than the gateway has, or an API server.
func TestYAMLWithAliases(t *testing.T) {
	for _, contentType := range []string{"application/yaml", "application/apply-patch+yaml", "application/yaml; charset=utf-8"} {
		for aliases, want := range map[int]int{2: http.StatusOK, 1 << 18: http.StatusBadRequest} {
			handler := withReadableContentType(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if body, err := io.ReadAll(r.Body); err != nil || !strings.HasPrefix(string(body), "a: &a ") {
					t.Errorf("%s: the body does not arrive: %v", contentType, err)
				}
			}))
			body := "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", aliases) + "]\n"
			r := httptest.NewRequest(http.MethodPatch, "/api/v1/namespaces/default/configmaps/a", strings.NewReader(body))
			r.Header.Set("Content-Type", contentType)
			info := &request.RequestInfo{IsResourceRequest: true, Verb: "patch", APIPrefix: "api", APIVersion: "v1", Namespace: "default", Resource: "configmaps", Name: "a"}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r.WithContext(request.WithRequestInfo(t.Context(), info)))
			if w.Code != want {
				t.Errorf("%s with %d aliases: %d %s, want %d", contentType, aliases, w.Code, w.Body, want)
			}
		}
	}
}

// TestContentType sends applies of a user who may patch, but not create, with parameters that only API servers overlook. None may reach a cell.
func TestContentType(t *testing.T) {
	const apply = "application/apply-patch+yaml"
	for _, test := range []struct {
		contentType, subresource string
		want                     int
	}{
		{apply, "", http.StatusForbidden},
		{apply + "; charset=utf-8", "", http.StatusForbidden},
		{apply + "; a=1; a=2", "", http.StatusUnsupportedMediaType},
		{apply + "; =", "", http.StatusUnsupportedMediaType},
		{"application/merge-patch+json", "", http.StatusOK},
		{"", "", http.StatusOK},
		{apply + "; a=1; a=2", "proxy", http.StatusOK}, // it is for somebody else
	} {
		handler := withReadableContentType(&creation.Handler{
			Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusNotFound)
					_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`))
				}
			}),
			Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				return authorizer.DecisionNoOpinion, "", nil
			}),
		})
		r := httptest.NewRequest(http.MethodPatch, "/api/v1/namespaces/default/configmaps/a", strings.NewReader("{}"))
		if test.contentType != "" {
			r.Header.Set("Content-Type", test.contentType)
		}
		info := &request.RequestInfo{IsResourceRequest: true, Verb: "patch", APIPrefix: "api", APIVersion: "v1", Namespace: "default", Resource: "configmaps", Name: "a", Subresource: test.subresource}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(request.WithUser(request.WithRequestInfo(t.Context(), info), &user.DefaultInfo{Name: "someone"})))
		if w.Code != test.want {
			t.Errorf("%q %s: %d %s, want %d", test.contentType, test.subresource, w.Code, w.Body, test.want)
		}
	}
}
