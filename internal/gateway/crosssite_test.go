package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
)

// TestOtherSitesReachNothing checks that pages of other sites are refused on every path, whether there is a console or not: users may have
// their certificate in a browser for other reasons.
func TestOtherSitesReachNothing(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	const pod = "/api/v1/namespaces/a/pods/b"
	for _, console := range []bool{true, false} {
		handler := gateway.WithConsole(console, next)
		for _, path := range []string{
			"/api/v1/secrets?watch=1", pod + "/exec?command=id", pod + "/attach", pod + "/portforward?ports=80", pod + "/proxy/", "/federation" + pod,
			"/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy/api/v1/secrets", "/consoles", "/version",
		} {
			for header, status := range map[string]int{
				"Origin: https://example.com": http.StatusTeapot, "Origin: https://evil.example": http.StatusForbidden, "Origin: null": http.StatusForbidden,
				"Sec-Fetch-Site: cross-site": http.StatusForbidden, "Sec-Fetch-Dest: serviceworker": http.StatusForbidden,
			} {
				r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
				key, value, _ := strings.Cut(header, ": ")
				r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, key: {value}}
				w := httptest.NewRecorder()
				if handler.ServeHTTP(w, r); w.Code != status {
					t.Errorf("with console %t, %s with %s: status %d, want %d", console, path, header, w.Code, status)
				}
			}
		}
	}
}

// testOtherSites asks a gateway with the certificate of an administrator, as a browser does for the page of another site.
func testOtherSites(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "other-sites")
	pods := "/api/v1/namespaces/" + namespace + "/pods"
	config, first := w.gateway.Config(t), w.gateway.Config(t)
	first.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades
	for _, origin := range []string{"https://evil.example", "null"} {
		for _, path := range []string{pods + "?watch=1", pods + "/x/exec?command=id", pods + "/x/attach", pods + "/x/portforward?ports=80"} {
			handshake := http.Header{
				"Origin": {origin}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-WebSocket-Version": {"13"},
				"Sec-WebSocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
			}
			if response := send(t, first, http.MethodGet, path, handshake, ""); response.StatusCode != http.StatusForbidden {
				t.Errorf("a WebSocket for %s from %s: %s", path, origin, response.Status)
			}
		}
		if response := send(t, config, http.MethodPost, pods, http.Header{"Origin": {origin}}, "{}"); response.StatusCode != http.StatusForbidden {
			t.Errorf("a creation from %s: %s", origin, response.Status)
		}
	}
	answer := send(t, config, http.MethodGet, "/api/v1/namespaces/"+namespace, http.Header{"Origin": {config.Host}}, "")
	if policy := answer.Header["Content-Security-Policy"]; answer.StatusCode != http.StatusOK || len(policy) != 1 || policy[0] != "sandbox" {
		t.Errorf("from the gateway's own origin: %s with the policy %q", answer.Status, policy)
	}
}
