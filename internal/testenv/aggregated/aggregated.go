// Package aggregated puts API servers of tests behind the API server of a cluster.
package aggregated

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/cellplane/cellplane/internal/pki"
	"github.com/cellplane/cellplane/internal/testenv"
)

// Service is the Service of an aggregated API server. It leads to a port of this machine: simulated clusters have no network.
type Service struct {
	Namespace, Name string
	// Port is where the server listens.
	Port int32
	// CA is that of its certificate, in PEM.
	CA []byte
}

// host is its name in its certificate.
func (s *Service) host() string { return s.Name + "." + s.Namespace + ".svc" }

// Certificate makes a certificate for the server, in a directory, and remembers its CA.
func (s *Service) Certificate(t testing.TB, dir string) pki.Pair {
	t.Helper()
	authority, err := pki.EnsureCA(dir, "ca")
	check(t, err)
	pair, err := authority.Ensure(dir, "serving", pki.Leaf{CommonName: s.Name, Hosts: []string{s.host()}})
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
	kube, err := kubernetes.NewForConfig(cluster)
	check(t, err)
	clients, err := aggregator.NewForConfig(cluster)
	check(t, err)
	services, apis := kube.CoreV1().Services(s.Namespace), clients.ApiregistrationV1().APIServices()
	_, err = services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	check(t, err)
	after := context.WithoutCancel(t.Context())
	t.Cleanup(func() { check(t, services.Delete(after, s.Name, metav1.DeleteOptions{})) })
	for _, gv := range versions {
		name := gv.Version + "." + gv.Group
		_, err := apis.Create(t.Context(), &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiregistrationv1.APIServiceSpec{
			Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: s.CA,
			Service: &apiregistrationv1.ServiceReference{Namespace: s.Namespace, Name: s.Name, Port: &s.Port},
		}}, metav1.CreateOptions{})
		check(t, err)
		t.Cleanup(func() { check(t, apis.Delete(after, name, metav1.DeleteOptions{})) })
		testenv.Eventually(t, name+" is available", func(ctx context.Context) (bool, error) {
			api, err := apis.Get(ctx, name, metav1.GetOptions{})
			return err == nil && slices.ContainsFunc(api.Status.Conditions, func(c apiregistrationv1.APIServiceCondition) bool {
				return c.Type == apiregistrationv1.Available && c.Status == apiregistrationv1.ConditionTrue
			}), err
		})
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
