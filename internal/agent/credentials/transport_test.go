package credentials

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestUpgrades checks that requests which take over their connection have one of HTTP/1.1, and others one of HTTP/2.
func TestUpgrades(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	transport, err := newTransport(&clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: ca}, func() *tls.Certificate { return &tls.Certificate{} })
	if err != nil {
		t.Fatal(err)
	}
	for upgrade, want := range map[string]string{"": "HTTP/2.0", "tunnel": "HTTP/1.1"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if upgrade != "" {
			request.Header.Set("Connection", "Upgrade")
			request.Header.Set("Upgrade", upgrade)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(body) != want {
			t.Errorf("upgrade to %q: %s, %v, want %s", upgrade, body, err, want)
		}
	}
}
