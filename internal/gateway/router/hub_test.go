package router

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// TestHubAsGateway checks that the gateway's own requests to the hub name nobody else, and that only its own requests count as such.
func TestHubAsGateway(t *testing.T) {
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
	defer server.Close()
	base, err := url.Parse(server.URL + "/clusters/hub/")
	if err != nil {
		t.Fatal(err)
	}
	hub := &HubAsGateway{Base: base, RoundTripper: http.DefaultTransport}
	sent := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/api/v1/events", RawQuery: "limit=1"}, Header: http.Header{
		"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}, "Authorization": {"Bearer x"}, "Accept": {"application/json"},
		"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.eA"},
	}}
	response, err := hub.RoundTrip(sent.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got.URL.String() != "/clusters/hub/api/v1/events?limit=1" || got.Header.Get("Accept") != "application/json" {
		t.Errorf("the hub got %s with %v", got.URL, got.Header)
	}
	for _, name := range []string{"X-Remote-User", "X-Remote-Group", "Authorization", "Sec-Websocket-Protocol"} {
		if got.Header.Get(name) != "" {
			t.Errorf("the hub got the header %s", name)
		}
	}
	if sent.URL.Host != "" || sent.Header.Get("X-Remote-User") != "admin" {
		t.Error("the request was changed")
	}
	if !forward.IsGateway(forward.WithGateway(t.Context())) || forward.IsGateway(t.Context()) ||
		forward.IsGateway(request.WithUser(t.Context(), &user.DefaultInfo{Name: names.GatewayUser})) {
		t.Error("requests of users with the gateway's name count as its own, or its own do not")
	}
}

// TestBootstrapTokens checks that the Secrets of bootstrap tokens are on the hub however they are named, and that other Secrets are in cells.
func TestBootstrapTokens(t *testing.T) {
	at := func(place string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Place", place+" "+string(body))
			_, _ = io.WriteString(w, `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`)
		}
	}
	rt := routerWithCell(t, at("cell"))
	hub, err := fleet.NewUpstream("hub", served(t, at("hub")), 1)
	if err != nil {
		t.Fatal(err)
	}
	rt.Hub = hub
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	const secrets = "/api/v1/namespaces/kube-system/secrets"
	const token, other = `{"metadata":{"name":"bootstrap-token-abcdef"}}`, `{"metadata":{"name":"other"}}`
	for _, test := range []struct {
		method, path, body string
		onHub              bool
	}{
		{http.MethodPost, secrets, token, true},
		{http.MethodPost, secrets, other, false},
		{http.MethodPost, "/api/v1/namespaces/default/secrets", token, false},
		{http.MethodGet, secrets + "/bootstrap-token-abcdef", "", true},
		{http.MethodDelete, secrets + "/bootstrap-token-abcdef", "", true},
		{http.MethodGet, secrets + "?fieldSelector=type%3Dbootstrap.kubernetes.io%2Ftoken", "", true},
		{http.MethodGet, secrets, "", false},
	} {
		r := httptest.NewRequest(test.method, test.path, strings.NewReader(test.body))
		r.Header.Set("Content-Type", "application/json")
		info, err := resolver.NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, r.WithContext(request.WithUser(request.WithRequestInfo(t.Context(), info), &user.DefaultInfo{Name: "someone"})))
		if onHub := w.Header().Get("Place") == "hub "+test.body; onHub != test.onHub {
			t.Errorf("%s %s %s: answered by the hub: %t (%d, %q)", test.method, test.path, test.body, onHub, w.Code, w.Header().Get("Place"))
		}
	}
}
