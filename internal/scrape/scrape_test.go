package scrape

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellplane/cellplane/internal/pki"
	"github.com/cellplane/cellplane/internal/ports"
)

// world has an authority, the options of a server, and clients.
type world struct {
	t         *testing.T
	dir       string
	pair      pki.Keypair
	authority *pki.Authority
	options   Options
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	w.pair, w.authority = authority(t)
	w.options = Options{CertFile: filepath.Join(w.dir, "tls.crt"), KeyFile: filepath.Join(w.dir, "tls.key"), ClientCAFile: w.write("ca.crt", w.pair.Cert)}
	w.serve(w.authority)
	return w
}

func authority(t *testing.T) (pki.Keypair, *pki.Authority) {
	t.Helper()
	pair, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := pki.LoadAuthority(pair)
	if err != nil {
		t.Fatal(err)
	}
	return pair, loaded
}

func (w *world) write(name string, data []byte) string {
	w.t.Helper()
	file := filepath.Join(w.dir, name)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// serve gives the server a certificate of an authority.
func (w *world) serve(by *pki.Authority) {
	w.t.Helper()
	pair, err := by.Issue(pki.Leaf{CommonName: "server", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.write("tls.crt", pair.Cert)
	w.write("tls.key", pair.Key)
}

// client returns a client that has a certificate of an authority, and trusts another. No authority means no certificate.
func (w *world) client(by *pki.Authority, trusts pki.Keypair, groups ...string) *http.Client {
	w.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusts.Cert)
	config := &tls.Config{RootCAs: roots}
	if by != nil {
		pair, err := by.Issue(pki.Leaf{CommonName: "client", Organizations: groups})
		if err != nil {
			w.t.Fatal(err)
		}
		certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			w.t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: time.Minute}
}

func (w *world) get(client *http.Client, path string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "https://"+w.options.Address+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// TestServe checks who gets metrics, and that renewed files count.
func TestServe(t *testing.T) {
	w := newWorld(t)
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "test_total", Help: "Test."})
	registry.MustRegister(counter)
	counter.Inc()
	port, err := ports.Choose()
	if err != nil {
		t.Fatal(err)
	}
	defer ports.Release(port)
	w.options.Address = fmt.Sprintf("127.0.0.1:%d", port)
	if err := w.options.Validate(); err != nil {
		t.Fatal(err)
	}
	stop, err := w.options.Serve(t.Context(), registry)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	operator := w.client(w.authority, w.pair, Group)
	if status, body, err := w.get(operator, "/metrics"); err != nil || status != http.StatusOK || !strings.Contains(body, "test_total 1") {
		t.Errorf("Prometheus gets %d %q, %v", status, body, err)
	}
	if status, _, err := w.get(operator, "/debug/pprof/"); err != nil || status != http.StatusNotFound {
		t.Errorf("another path: %d, %v", status, err)
	}
	if status, body, err := w.get(w.client(w.authority, w.pair, "system:masters"), "/metrics"); err != nil || status != http.StatusForbidden || strings.Contains(body, "test_total") {
		t.Errorf("another group gets %d %q, %v", status, body, err)
	}
	otherPair, other := authority(t)
	for name, client := range map[string]*http.Client{"no certificate": w.client(nil, w.pair), "another authority": w.client(other, w.pair, Group)} {
		if status, body, err := w.get(client, "/metrics"); err == nil {
			t.Errorf("%s: gets %d %q", name, status, body)
		}
	}
	w.serve(other)
	w.write("ca.crt", otherPair.Cert)
	if status, _, err := w.get(w.client(other, otherPair, Group), "/metrics"); err != nil || status != http.StatusOK {
		t.Errorf("with renewed files: %d, %v", status, err)
	}
	if status, _, err := w.get(w.client(w.authority, otherPair, Group), "/metrics"); err == nil {
		t.Errorf("with a certificate of the former authority: %d", status)
	}
	if _, err := w.options.Serve(t.Context(), registry); err == nil || !strings.Contains(err.Error(), "--metrics-tls-address") {
		t.Errorf("an address in use: %v", err)
	}
}

// TestValidate finds options that do not fit together.
func TestValidate(t *testing.T) {
	w := newWorld(t)
	if err := (&Options{}).Validate(); err != nil {
		t.Errorf("no options: %v", err)
	}
	for words, o := range map[string]Options{
		"need --metrics-tls-address":         {CertFile: w.options.CertFile},
		"needs --metrics-tls-cert-file":      {Address: ":0", KeyFile: w.options.KeyFile, ClientCAFile: w.options.ClientCAFile},
		"needs --metrics-tls-cert-file, --":  {Address: ":0", CertFile: w.options.CertFile, KeyFile: w.options.KeyFile},
		"reading --metrics-client-ca-file":   {Address: ":0", CertFile: w.options.CertFile, KeyFile: w.options.KeyFile, ClientCAFile: filepath.Join(w.dir, "none")},
		"has no certificate":                 {Address: ":0", CertFile: w.options.CertFile, KeyFile: w.options.KeyFile, ClientCAFile: w.options.KeyFile},
		"reading --metrics-tls-cert-file an": {Address: ":0", CertFile: w.options.ClientCAFile, KeyFile: w.options.KeyFile, ClientCAFile: w.options.ClientCAFile},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%+v: %v, want %q", o, err, words)
		}
	}
}
