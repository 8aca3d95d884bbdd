package short_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/short"
	"github.com/cellplane/cellplane/internal/pki"
)

// server starts a server with its own certificate.
func server(t *testing.T, handler http.Handler) (*httptest.Server, *short.Connections) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, connect(t, s.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// connect returns connections to an address that is verified with a certificate.
func connect(t *testing.T, address string, authority []byte) *short.Connections {
	t.Helper()
	cert, key := ownCertificate(t)
	connections, err := short.New(fleet.Endpoint{Server: address, ServerName: "example.com", CA: authority, Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(connections.Close)
	return connections
}

func get(ctx context.Context, connections *short.Connections, path string) (string, error) {
	r := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}, Header: http.Header{}}).WithContext(ctx)
	response, err := connections.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// echo answers with the path, in one chunk or in many.
func echo(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/many") {
		for _, letter := range r.URL.Path {
			_, _ = io.WriteString(w, string(letter))
			_ = http.NewResponseController(w).Flush()
		}
		return
	}
	_, _ = io.WriteString(w, r.URL.Path)
}

// TestConcurrentRequests shares connections between many goroutines, some of which cancel their requests.
func TestConcurrentRequests(t *testing.T) {
	_, connections := server(t, http.HandlerFunc(echo))
	var group sync.WaitGroup
	for worker := range 16 {
		group.Go(func() {
			for i := range 50 {
				path := fmt.Sprintf("/%s/%d/%d", []string{"one", "many"}[i%2], worker, i)
				if i%7 == 3 {
					cancelRequest(t, connections, path)
					continue
				}
				if got, err := get(t.Context(), connections, path); err != nil || got != path {
					t.Errorf("%s is answered with %q, %v", path, got, err)
				}
			}
		})
	}
	group.Wait()
}

// cancelRequest cancels a request after the head of its response.
func cancelRequest(t *testing.T, connections *short.Connections, path string) {
	ctx, cancel := context.WithCancel(t.Context())
	r := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}, Header: http.Header{}}).WithContext(ctx)
	response, err := connections.RoundTrip(r)
	cancel()
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	response.Body.Close()
}

// TestClosedConnections retries requests on connections that the server has closed while they were idle.
func TestClosedConnections(t *testing.T) {
	s, connections := server(t, http.HandlerFunc(echo))
	for i := range 20 {
		path := fmt.Sprintf("/one/%d", i)
		if got, err := get(t.Context(), connections, path); err != nil || got != path {
			t.Fatalf("%s is answered with %q, %v", path, got, err)
		}
		s.CloseClientConnections()
	}
}

// TestOrdinaryPath refuses requests with invalid headers or a body, and requests that are not answered.
func TestOrdinaryPath(t *testing.T) {
	_, connections := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hanging" {
			<-r.Context().Done()
		}
		echo(w, r)
	}))
	for name, r := range map[string]*http.Request{
		"a header with a line break": {Header: http.Header{"X": {"a\r\nX-Remote-User: root"}}},
		"a name with a line break":   {Header: http.Header{"X: a\r\nX-Remote-User": {"root"}}},
		"a body":                     {Header: http.Header{}, Body: io.NopCloser(strings.NewReader("x"))},
		"no answer":                  {Header: http.Header{}, URL: &url.URL{Path: "/hanging"}},
	} {
		t.Run(name, func(t *testing.T) {
			r.Method = http.MethodGet
			if r.URL == nil {
				r.URL = &url.URL{Path: "/"}
			}
			if _, err := connections.RoundTrip(r.WithContext(t.Context())); !errors.Is(err, short.ErrOrdinaryPath) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestHostileCell has a cell that sends two responses for one request, and one that sends endless headers.
func TestHostileCell(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(io.Writer)
		want   string
	}{
		"two responses at once": {func(w io.Writer) {
			const one = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
			_, _ = io.WriteString(w, one+"mine"+one+"evil")
		}, "mine"},
		"endless headers": {func(w io.Writer) {
			_, err := io.WriteString(w, "HTTP/1.1 200 OK\r\n")
			for err == nil {
				_, err = io.WriteString(w, "X-More: "+strings.Repeat("x", 4096)+"\r\n")
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			address, authority := hostile(t, test.answer)
			connections := connect(t, address, authority)
			for range 3 {
				got, err := get(t.Context(), connections, "/")
				if test.want == "" && !errors.Is(err, short.ErrOrdinaryPath) {
					t.Fatalf("got %d bytes, %v", len(got), err)
				}
				if test.want != "" && (err != nil || got != test.want) {
					t.Fatalf("got %q, %v", got, err)
				}
			}
		})
	}
}

// TestRenewedFiles renews the certificate on disk.
func TestRenewedFiles(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	dir := t.TempDir()
	authority, err := pki.EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := fleet.Endpoint{
		Server: s.URL, ServerName: "example.com", CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		CertFile: filepath.Join(dir, "client.crt"), KeyFile: filepath.Join(dir, "client.key"),
	}
	issue := func(name string) {
		t.Helper()
		pair, err := authority.Ensure(dir, name, pki.Leaf{CommonName: name})
		if err != nil {
			t.Fatal(err)
		}
		for from, to := range map[string]string{pair.CertFile: endpoint.CertFile, pair.KeyFile: endpoint.KeyFile} {
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	issue("first")
	if endpoint, err = endpoint.LoadFiles(); err != nil {
		t.Fatal(err)
	}
	connections, err := short.New(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(connections.Close)
	if name, err := get(t.Context(), connections, "/"); err != nil || name != "first" {
		t.Fatalf("the certificate is %q, %v", name, err)
	}
	issue("second")
	for deadline := time.Now().Add(time.Minute); ; {
		name, err := get(t.Context(), connections, "/")
		if err == nil && name == "second" {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the certificate is %q, %v", name, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// hostile starts a server that gives the same answer to every request.
func hostile(t *testing.T, answer func(io.Writer)) (address string, authority []byte) {
	t.Helper()
	cert, key := ownCertificate(t)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func(connection net.Conn) {
				defer connection.Close()
				for reader := bufio.NewReader(connection); ; {
					if _, err := http.ReadRequest(reader); err != nil {
						return
					}
					answer(connection)
				}
			}(connection)
		}
	}()
	return "https://" + listener.Addr().String(), cert
}

// ownCertificate returns a certificate for example.com followed by its CA, and its key.
func ownCertificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	dir := t.TempDir()
	authority, err := pki.EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Ensure(dir, "server", pki.Leaf{CommonName: "server", Hosts: []string{"example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	for file, into := range map[string]*[]byte{pair.CertFile: &cert, pair.KeyFile: &key} {
		if *into, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := os.ReadFile(authority.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	return append(cert, ca...), key
}
