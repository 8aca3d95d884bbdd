package served

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/gateway/keep"
)

var resolver = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// serve sends a request of a user to a Handler with some limits; nil means that they are not known.
func serve(t *testing.T, limits *Limits, u user.Info, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	apis := &APIs{kept: keep.NewValue[[]cellplanev1alpha1.ServedAPI]("", "")}
	if limits != nil {
		apis.live.Store(limits)
	}
	recorder := httptest.NewRecorder()
	(&Handler{
		APIs: apis,
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if From(r.Context()) != nil {
				w.Header().Set("Limited", "true")
			}
		}),
		IsLongRunning: func(_ *http.Request, info *request.RequestInfo) bool { return info.Verb == "watch" },
	}).ServeHTTP(recorder, requestOf(t, u, method, path))
	return recorder
}

func requestOf(t *testing.T, u user.Info, method, path string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
	info, err := resolver.NewRequestInfo(r)
	if err != nil {
		t.Fatal(err)
	}
	return r.WithContext(request.WithUser(request.WithRequestInfo(r.Context(), info), u))
}

var (
	tenantAPI = NewLimits([]cellplanev1alpha1.ServedAPI{api("tenants", []string{"tenants", user.AllAuthenticated},
		rule([]string{""}, []string{"configmaps", "pods/log"}, []string{"get", "list"}),
		rule([]string{"apps"}, []string{"deployments"}, []string{"*"}),
	)})
	tenant = &user.DefaultInfo{Name: "tina", Groups: []string{"tenants"}}
)

func TestHandler(t *testing.T) {
	for _, test := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/api/v1/namespaces/x/configmaps", 200},
		{"HEAD", "/api/v1/namespaces/x/configmaps/a", 200},
		{"GET", "/api/v1/configmaps?watch=1", 405},
		{"GET", "/api/v1/configmaps?watch=nonsense", 405},
		{"GET", "/api/v1/watch/configmaps", 405},
		{"GET", "/api/v1/watch/namespaces/x/configmaps/a", 405},
		{"DELETE", "/api/v1/namespaces/x/configmaps", 405},
		{"POST", "/api/v1/namespaces/x/configmaps?dryRun=All", 405},
		{"OPTIONS", "/api/v1/namespaces/x/configmaps/a", 405},
		{"BREW", "/api/v1/namespaces/x/configmaps/a", 405},
		{"GET", "/api/v1/proxy/namespaces/x/configmaps/a", 405},
		{"GET", "/api/v1/namespaces/x/ConfigMaps/a", 404},
		{"GET", "/api/v1/namespaces/x/configmaps/a/status", 404},
		{"GET", "/api/v1/namespaces/x", 404},
		{"PUT", "/api/v1/namespaces/x/finalize", 404},
		{"PUT", "/api/v1/namespaces/configmaps/status", 404},
		{"GET", "/api/v1/namespaces/x/secrets", 404},
		{"GET", "/api/v1/watch/secrets", 404},
		{"GET", "/api/v1/namespaces/x/pods/a", 404},
		{"GET", "/api/v1/namespaces/x/pods/a/log", 200},
		{"GET", "/api/v1/namespaces/x/pods/a/exec", 404},
		{"GET", "/api/v1/proxy/nodes/a/api", 404},
		{"GET", "/apis/apps/v1/watch/deployments", 200},
		{"DELETE", "/apis/apps/v1beta1/namespaces/x/deployments", 200}, // of all versions
		{"GET", "/apis/extensions/v1beta1/namespaces/x/deployments", 404},
		{"GET", "/apis/apps/v1/namespaces/x/deployments/a/scale", 404},
		{"GET", "/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy/api/v1/configmaps", 404},
		{"GET", "/healthz", 200}, {"GET", "/version", 200}, {"GET", "/metrics", 200}, {"GET", "/", 200}, {"GET", "/APIS/apps/v1/statefulsets", 200}, // not the API
		{"GET", "/api", 200}, {"GET", "/apis/apps/v1", 200}, {"GET", "/openapi/v2", 200}, // filtered by others
	} {
		got := serve(t, tenantAPI, tenant, test.method, test.path)
		if got.Code != test.code {
			t.Errorf("%s %s: %d, want %d", test.method, test.path, got.Code, test.code)
		}
		if limited := got.Header().Get("Limited") != ""; limited != (got.Code == 200 && isAPIPath(test.path)) {
			t.Errorf("%s %s: the next handler knows of the limit: %v", test.method, test.path, limited)
		}
		if got.Code == 404 && !strings.Contains(got.Body.String(), `"message":"the server could not find the requested resource"`) {
			t.Errorf("%s %s: %q is not what API servers answer", test.method, test.path, got.Body)
		}
	}
}

func isAPIPath(path string) bool {
	return path == "/api" || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/") || strings.HasPrefix(path, "/openapi/")
}

// TestUsers checks who is limited, and who is served while the limits are not known.
func TestUsers(t *testing.T) {
	for _, test := range []struct {
		name         string
		groups       []string
		code, unsure int
	}{
		{"tina", []string{"tenants"}, 404, 503},
		{"tina", []string{"tenants", "system:masters"}, 200, 200},
		{"anna", nil, 200, 503},
		{"anna", []string{"system:authenticated"}, 404, 503},
		{"system:anonymous", []string{"system:unauthenticated"}, 200, 503},
		{"system:cellplane:engine:cell-a", []string{"system:authenticated"}, 200, 200},
		{"system:karmada:agent:member1", []string{"system:karmada:agents", "system:authenticated"}, 200, 200},
		{"system:kube-controller-manager", []string{"system:authenticated"}, 200, 200},
		{"system:serviceaccount:kube-system:namespace-controller", []string{"system:serviceaccounts", "system:authenticated"}, 200, 200},
		{"system:serviceaccount:shop:robot", []string{"system:serviceaccounts", "system:authenticated"}, 404, 503},
	} {
		u := &user.DefaultInfo{Name: test.name, Groups: test.groups}
		if got := serve(t, tenantAPI, u, "GET", "/api/v1/namespaces/x/secrets").Code; got != test.code {
			t.Errorf("%s of %v: %d, want %d", test.name, test.groups, got, test.code)
		}
		for _, path := range []string{"/api/v1/namespaces/x/configmaps", "/apis", "/openapi/v2"} {
			if got := serve(t, nil, u, "GET", path).Code; got != test.unsure {
				t.Errorf("%s of %v asks for %s while nothing is known: %d, want %d", test.name, test.groups, path, got, test.unsure)
			}
		}
		if got := serve(t, nil, u, "GET", "/readyz").Code; got != 200 {
			t.Errorf("%s of %v asks for /readyz while nothing is known: %d", test.name, test.groups, got)
		}
	}
}

// TestStreamsEnd checks that a watch ends when it is no longer served, and no other.
func TestStreamsEnd(t *testing.T) {
	apis := &APIs{kept: keep.NewValue[[]cellplanev1alpha1.ServedAPI]("", "")}
	apis.live.Store(NewLimits(nil))
	began := make(chan context.Context)
	handler := &Handler{
		APIs: apis,
		Next: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			began <- r.Context()
			<-r.Context().Done()
		}),
		IsLongRunning: func(_ *http.Request, info *request.RequestInfo) bool { return info.Verb == "watch" },
	}
	watch := func(path string) context.Context {
		go handler.ServeHTTP(httptest.NewRecorder(), requestOf(t, tenant, "GET", path+"?watch=1"))
		return <-began
	}
	secrets, deployments := watch("/api/v1/secrets"), watch("/apis/apps/v1/deployments")
	apis.streams.end(tenantAPI)
	if secrets.Err() == nil || deployments.Err() != nil {
		t.Errorf("the watch of secrets: %v; that of deployments, which are served: %v", secrets.Err(), deployments.Err())
	}
}
