package fleet

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/pki"
)

// identities is a server that answers with the common name of the client's certificate, and certificates for its clients.
type identities struct {
	authority *pki.CA
	server    *httptest.Server
	dir       string
}

func newIdentities(t *testing.T) *identities {
	t.Helper()
	dir := t.TempDir()
	authority, err := pki.EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(read(t, filepath.Join(dir, "ca.crt")))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Sent-Authorization", r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return &identities{authority: authority, server: server, dir: dir}
}

func (i *identities) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw})
}

// issue writes a certificate into the files, in place of what they hold.
func (i *identities) issue(t *testing.T, name string, endpoint Endpoint) {
	t.Helper()
	pair, err := i.authority.Ensure(i.dir, name, pki.Leaf{CommonName: name})
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{pair.CertFile: endpoint.CertFile, pair.KeyFile: endpoint.KeyFile} {
		if err := os.WriteFile(to, read(t, from), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestRenewedFiles renews the certificate of an upstream on disk.
func TestRenewedFiles(t *testing.T) {
	i := newIdentities(t)
	endpoint := Endpoint{Server: i.server.URL, CA: i.ca(), CertFile: filepath.Join(i.dir, "client.crt"), KeyFile: filepath.Join(i.dir, "client.key")}
	i.issue(t, "first", endpoint)
	endpoint, err := endpoint.LoadFiles()
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := NewUpstream("renewed", endpoint, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(upstream.Close)
	for range 4 {
		if name := addressOf(t, upstream); name != "first" {
			t.Fatalf("the certificate is %s", name)
		}
	}
	// Half a renewal changes nothing.
	key := read(t, endpoint.KeyFile)
	if err := os.WriteFile(endpoint.KeyFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	upstream.tls.checkAt.Store(0)
	if name := addressOf(t, upstream); name != "first" {
		t.Fatalf("the certificate is %s", name)
	}
	if err := os.WriteFile(endpoint.KeyFile, key, 0o600); err != nil {
		t.Fatal(err)
	}
	i.issue(t, "second", endpoint)
	upstream.tls.checkAt.Store(0)
	for range 4 { // all connections have the new one
		if name := addressOf(t, upstream); name != "second" {
			t.Fatalf("the certificate is %s after the renewal", name)
		}
	}
}

// TestEndpointFrom keeps files as files, so that they are re-read.
func TestEndpointFrom(t *testing.T) {
	config := &rest.Config{Host: "https://hub", TLSClientConfig: rest.TLSClientConfig{
		ServerName: "hub.example", CAData: []byte("ca"), CAFile: "ca.crt", CertFile: "client.crt", KeyFile: "client.key",
	}}
	endpoint := EndpointFrom(config)
	if endpoint.Server != "https://hub" || endpoint.ServerName != "hub.example" || string(endpoint.CA) != "ca" || endpoint.CAFile != "" ||
		endpoint.CertFile != "client.crt" || endpoint.KeyFile != "client.key" {
		t.Errorf("the endpoint is %+v", endpoint)
	}
	again := endpoint.Config("user", nil, nil)
	if again.CertFile != "client.crt" || len(again.CertData) > 0 || string(again.CAData) != "ca" {
		t.Errorf("the configuration is %+v", again.TLSClientConfig)
	}
}

func TestCheckSecret(t *testing.T) {
	i := newIdentities(t)
	pair, err := i.authority.Ensure(i.dir, "complete", pki.Leaf{CommonName: "complete"})
	if err != nil {
		t.Fatal(err)
	}
	complete := map[string][]byte{"tls.crt": read(t, pair.CertFile), "tls.key": read(t, pair.KeyFile), "ca.crt": i.ca()}
	for _, test := range []struct {
		name  string
		alter func(map[string][]byte)
		want  string
	}{
		{name: "complete", alter: func(map[string][]byte) {}},
		{name: "no key", alter: func(data map[string][]byte) { delete(data, "tls.key") }, want: "the Secret system/cell-a has no tls.key"},
		{name: "no authorities", alter: func(data map[string][]byte) { delete(data, "ca.crt") }, want: "the Secret system/cell-a has no ca.crt"},
		{name: "a broken key", alter: func(data map[string][]byte) { data["tls.key"] = []byte("x") }, want: "the Secret system/cell-a has no usable tls.crt and tls.key: "},
		{name: "broken authorities", alter: func(data map[string][]byte) { data["ca.crt"] = []byte("x") }, want: "the Secret system/cell-a cannot be used: there is no certificate in the CA bundle"},
	} {
		t.Run(test.name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "cell-a"}, Data: map[string][]byte{}}
			for key, value := range complete {
				secret.Data[key] = value
			}
			test.alter(secret.Data)
			_, err := StoreTLS(secret)
			if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestFileCheckInterval does not read files with every request.
func TestFileCheckInterval(t *testing.T) {
	i := newIdentities(t)
	endpoint := Endpoint{Server: i.server.URL, CA: i.ca(), CertFile: filepath.Join(i.dir, "client.crt"), KeyFile: filepath.Join(i.dir, "client.key")}
	i.issue(t, "first", endpoint)
	endpoint, err := endpoint.LoadFiles()
	if err != nil {
		t.Fatal(err)
	}
	config, err := endpoint.ClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	before := config.Config()
	config.checkAt.Store(time.Now().Add(time.Hour).UnixNano())
	i.issue(t, "second", endpoint)
	if config.Config() != before {
		t.Error("the files were read before their time")
	}
	config.checkAt.Store(0)
	if config.Config() == before {
		t.Error("the files were not read in time")
	}
}
