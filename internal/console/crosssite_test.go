package console

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	"k8s.io/client-go/rest"
	clientwebsocket "k8s.io/client-go/transport/websocket"
)

// refused answers what is refused.
func refused(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusForbidden) }

// TestOtherSitesAreRefused asks as the pages of this and of other sites do, in browsers with and without Sec-Fetch-Site. The host of the
// gateway is example.com.
func TestOtherSitesAreRefused(t *testing.T) {
	handler := RefuseOtherSites(next, refused)
	const passes, fails = http.StatusTeapot, http.StatusForbidden
	for _, test := range []struct {
		what   string
		header []string
		status int
	}{
		{"no browser", nil, passes},
		{"another site", []string{"Sec-Fetch-Site", "cross-site"}, fails},
		{"a host beside it", []string{"Sec-Fetch-Site", "same-site"}, fails},
		{"the console", []string{"Sec-Fetch-Site", "same-origin"}, passes},
		{"a typed address", []string{"Sec-Fetch-Site", "none"}, passes},
		{"the console in a browser that sends both", []string{"Sec-Fetch-Site", "same-origin", "Origin", "https://example.com"}, passes},
		{"the console behind a proxy that changes Host", []string{"Sec-Fetch-Site", "same-origin", "Origin", "https://console.example.org"}, passes},
		{"another site that claims the origin", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://example.com"}, fails},
		{"another origin that was typed", []string{"Sec-Fetch-Site", "none", "Origin", "https://evil.example"}, fails},
		{"an older browser", []string{"Origin", "https://example.com"}, passes},
		{"other letters", []string{"Origin", "HTTPS://Example.COM"}, passes},
		{"the usual port", []string{"Origin", "https://example.com:443"}, passes},
		{"another origin", []string{"Origin", "https://evil.example"}, fails},
		{"a page without origin", []string{"Origin", "null"}, fails},
		{"an empty origin", []string{"Origin", ""}, fails},
		{"no encryption", []string{"Origin", "http://example.com"}, fails},
		{"another port", []string{"Origin", "https://example.com:8443"}, fails},
		{"the host as a part of another", []string{"Origin", "https://example.com.evil.example"}, fails},
		{"the host at the end of another", []string{"Origin", "https://evil-example.com"}, fails},
		{"the host as a user", []string{"Origin", "https://example.com@evil.example"}, fails},
		{"a service worker", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", "serviceworker"}, fails},
		{"a service worker in an older browser", []string{"Service-Worker", "script"}, fails},
		{"a page", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Dest", "document"}, passes},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			if got := get(t, handler, method, "/api/v1/namespaces", test.header...).StatusCode; got != test.status {
				t.Errorf("%s, %s: status %d, want %d", test.what, method, got, test.status)
			}
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/api/v1/secrets", http.NoBody)
	r.Header["Origin"] = []string{"https://example.com", "https://evil.example"}
	w := httptest.NewRecorder()
	if handler.ServeHTTP(w, r); w.Code != http.StatusForbidden {
		t.Errorf("two origins: status %d", w.Code)
	}
}

// TestWebSocketsOfOtherSites opens WebSockets as browsers and other clients do: with that of client-go, which sends no Origin, and with
// one that names the address it connects to.
func TestWebSocketsOfOtherSites(t *testing.T) {
	const protocol = "v5.channel.k8s.io"
	server := httptest.NewTLSServer(RefuseOtherSites(&websocket.Server{
		Handshake: func(config *websocket.Config, _ *http.Request) error {
			config.Protocol = []string{protocol}
			return nil
		},
		Handler: func(socket *websocket.Conn) { _ = websocket.Message.Send(socket, "secret") },
	}, refused))
	defer server.Close()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})

	tripper, holder, err := clientwebsocket.RoundTripperFor(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: certificate}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/namespaces/a/pods/b/exec", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := clientwebsocket.Negotiate(tripper, holder, r, protocol)
	if err != nil {
		t.Fatal("client-go:", err)
	}
	_ = connection.Close() // the server may have closed it

	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	for origin, passes := range map[string]bool{server.URL: true, "https://evil.example": false, "http" + strings.TrimPrefix(server.URL, "https"): false} {
		config, err := websocket.NewConfig("wss"+strings.TrimPrefix(server.URL, "https")+"/api/v1/secrets?watch=1", origin)
		if err != nil {
			t.Fatal(err)
		}
		config.Protocol = []string{protocol}
		config.TlsConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		config.TlsConfig.RootCAs = roots
		socket, err := config.DialContext(t.Context())
		if (err == nil) != passes {
			t.Errorf("from %s: %v", origin, err)
		}
		if err == nil {
			_ = socket.Close() // the server may have closed it
		}
	}
}
