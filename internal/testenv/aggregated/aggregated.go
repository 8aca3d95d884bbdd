// Package aggregated puts API servers of tests behind the API server of a cluster.
package aggregated

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/aggregate"
	"github.com/cellplane/cellplane/internal/pki"
	"github.com/cellplane/cellplane/internal/testenv"
)

// Service is the Service of an aggregated API server.
type Service struct{ aggregate.Service }

// New returns a Service.
func New(namespace, name string) *Service {
	return &Service{aggregate.Service{Namespace: namespace, Name: name}}
}

// Certificate makes a certificate for the server, in a directory, and remembers its CA.
func (s *Service) Certificate(t testing.TB, dir string) pki.Pair {
	t.Helper()
	authority, err := pki.EnsureCA(dir, "ca")
	check(t, err)
	pair, err := authority.Ensure(dir, "serving", pki.Leaf{CommonName: s.Name, Hosts: []string{s.Host()}})
	check(t, err)
	s.CA, err = os.ReadFile(authority.CertFile)
	check(t, err)
	return pair
}

// Serve serves a handler until the test ends, for the API server of the cluster alone, which says who asks in headers.
func (s *Service) Serve(t testing.TB, cluster *rest.Config, handler http.Handler) {
	t.Helper()
	kube, err := kubernetes.NewForConfig(cluster)
	check(t, err)
	trusted, err := kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	check(t, err)
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM([]byte(trusted.Data["requestheader-client-ca-file"])) {
		t.Fatal("the cluster does not forward requests to aggregated APIs")
	}
	pair := s.Certificate(t, t.TempDir())
	certificate, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	check(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	s.Port = int32(listener.Addr().(*net.TCPAddr).Port)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
}

// Register lets the cluster serve APIs with the server until the test ends, and waits until it does.
func (s *Service) Register(t testing.TB, cluster *rest.Config, versions ...schema.GroupVersion) {
	t.Helper()
	client, err := aggregate.NewClient(cluster)
	check(t, err)
	check(t, s.Service.Register(t.Context(), client, versions...))
	after := context.WithoutCancel(t.Context())
	t.Cleanup(func() { check(t, s.Withdraw(after, client, versions...)) })
	for _, gv := range versions {
		testenv.Eventually(t, gv.String()+" is available", func(ctx context.Context) (bool, error) { return aggregate.Available(ctx, client, gv) })
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
