package router

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
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
	}}
	response, err := hub.RoundTrip(sent.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got.URL.String() != "/clusters/hub/api/v1/events?limit=1" || got.Header.Get("Accept") != "application/json" {
		t.Errorf("the hub got %s with %v", got.URL, got.Header)
	}
	for _, name := range []string{"X-Remote-User", "X-Remote-Group", "Authorization"} {
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
