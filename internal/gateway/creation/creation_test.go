package creation

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/forward"
)

var resolver = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// TestCreation checks which requests for an object that may not exist reach the next handler, and how the others are answered.
func TestCreation(t *testing.T) {
	const apply, merge = "application/apply-patch+yaml; charset=utf-8", "application/merge-patch+json"
	resource := schema.GroupResource{Resource: "configmaps"}
	absent, forbidden := apierrors.NewNotFound(resource, "a"), apierrors.NewForbidden(resource, "a", nil)
	for _, test := range []struct {
		name         string
		may          bool // create
		method, path string
		media        string
		found        error
		want         int
		looks        bool
	}{
		{"apply to an object", false, "PATCH", "/configmaps/a", apply, nil, 200, true},
		{"apply of a new object", false, "PATCH", "/configmaps/a", apply, absent, 403, true},
		{"apply by who may create", true, "PATCH", "/configmaps/a", apply, absent, 200, false},
		{"apply in CBOR", false, "PATCH", "/configmaps/a", "application/apply-patch+cbor", absent, 403, true},
		{"another patch", false, "PATCH", "/configmaps/a", merge, absent, 200, false},
		{"PUT of a new object", false, "PUT", "/configmaps/a", "application/json", absent, 404, true},
		{"PUT of an object", false, "PUT", "/configmaps/a", "application/json", nil, 200, true},
		{"apply of a status", false, "PATCH", "/configmaps/a/status", apply, absent, 200, false},
		{"apply to what the hub authorizes", false, "PATCH", "/configmaps/a", apply, forbidden, 200, true},
		{"apply while nothing is known", false, "PATCH", "/configmaps/a", apply, apierrors.NewServiceUnavailable("down"), 503, true},
		{"creation", false, "POST", "/configmaps", "application/json", absent, 200, false},
		{"deletion", false, "DELETE", "/configmaps/a", "", absent, 200, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			looked := false
			handler := &Handler{
				Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if info, _ := request.RequestInfoFrom(r.Context()); info.Verb == "get" && r.Method == http.MethodGet {
						if looked = true; test.found != nil {
							forward.WriteError(w, r, test.found)
						}
					}
				}),
				Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
					if a.GetVerb() == "create" && a.GetName() == "a" && test.may {
						return authorizer.DecisionAllow, "", nil
					}
					return authorizer.DecisionNoOpinion, "", nil
				}),
			}
			r := httptest.NewRequestWithContext(t.Context(), test.method, "/api/v1/namespaces/x"+test.path, strings.NewReader("{}"))
			r.Header.Set("Content-Type", test.media)
			info, err := resolver.NewRequestInfo(r)
			if err != nil {
				t.Fatal(err)
			}
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, r.WithContext(request.WithUser(request.WithRequestInfo(r.Context(), info), &user.DefaultInfo{Name: "pat"})))
			if recorder.Code != test.want || looked != test.looks {
				t.Errorf("got %d %s, looked %v", recorder.Code, recorder.Body, looked)
			}
		})
	}
}
