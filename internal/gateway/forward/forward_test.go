package forward_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// upstreamOf returns a connection to a server with a handler.
func upstreamOf(t *testing.T, handler http.HandlerFunc) *fleet.Upstream {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	// Any certificate will do, such as the server's.
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := fleet.NewUpstream("cell", fleet.Endpoint{
		Server: server.URL, CA: certificate, Cert: certificate, Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return upstream
}

// TestPagesOfPods checks that browsers show the page of a pod without an origin, however it is asked for and whatever it says, and that the
// pod gets no token from the handshake of a WebSocket.
func TestPagesOfPods(t *testing.T) {
	upstream := upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/early" {
			w.Header().Set("Link", "</style.css>; rel=preload; as=style")
			w.WriteHeader(http.StatusEarlyHints)
		}
		for key, value := range map[string]string{
			"Content-Type": "text/html", "content-security-policy": "script-src *", "Service-Worker-Allowed": "/console/", "Seen": r.Header.Get("Sec-WebSocket-Protocol"),
		} {
			w.Header().Add(key, value)
		}
		w.Header().Add("Content-Security-Policy", "sandbox allow-scripts allow-same-origin")
		if r.URL.Path == "/upgraded" {
			connection, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer connection.Close()
			fmt.Fprint(buffered, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nService-Worker-Allowed: /\r\n\r\n")
			_ = buffered.Flush()
			return
		}
		_, _ = io.WriteString(w, "<script>alert(1)</script>")
	})
	forwarder := forward.New()
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		forwarder.To(w, r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: "someone"})), upstream, forward.ToCell(1))
	}))
	defer gateway.Close()
	for _, test := range []struct {
		path    string
		upgrade bool
		status  int
	}{
		{"/page", false, http.StatusOK},
		{"/early", false, http.StatusOK},
		{"/page", true, http.StatusOK},
		{"/early", true, http.StatusOK},
		{"/upgraded", true, http.StatusSwitchingProtocols},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, gateway.URL+test.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Sec-WebSocket-Protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9rZW4")
		if test.upgrade {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		header := response.Header
		if policy := header["Content-Security-Policy"]; response.StatusCode != test.status || !slices.Equal(policy, []string{"sandbox"}) || header["Service-Worker-Allowed"] != nil {
			t.Errorf("%s, upgrade %t: status %d, policy %q, service workers for %q", test.path, test.upgrade, response.StatusCode, policy, header["Service-Worker-Allowed"])
		}
		if seen := header.Get("Seen"); test.status == http.StatusOK && seen != "v5.channel.k8s.io" {
			t.Errorf("%s, upgrade %t: the pod gets the subprotocols %q", test.path, test.upgrade, seen)
		}
	}
}
