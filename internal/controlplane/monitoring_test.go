package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cellplane/cellplane/internal/metriclist/stock"
	"github.com/cellplane/cellplane/internal/pki"
	"github.com/cellplane/cellplane/internal/scrape"
)

// testMonitoring reads the metrics of an API server as Prometheus does, by a certificate that is for nothing else, and those of etcd, and looks for all that alerts
// and dashboards use.
func testMonitoring(t *testing.T, c *ControlPlane) {
	config, err := c.ClientConfig("monitoring", pki.Leaf{CommonName: "system:cellplane:metrics", Organizations: []string{scrape.Group}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	served, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	expectMetrics(t, "kube-apiserver", string(served), stock.APIServer, stock.Process)
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("whoever reads metrics lists namespaces: %v", err)
	}
	if _, err := client.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("whoever reads metrics lists Secrets: %v", err)
	}
	expectMetrics(t, "etcd", etcdMetrics(t, c), stock.Etcd, stock.Process)
}

func etcdMetrics(t *testing.T, c *ControlPlane) string {
	t.Helper()
	caFile, pair, err := c.EtcdFiles()
	if err != nil {
		t.Fatal(err)
	}
	authorities, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	certificate, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.EtcdHTTPURL()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response.Status, err)
	}
	return string(text)
}

func expectMetrics(t *testing.T, program, served string, groups ...[]stock.Metric) {
	t.Helper()
	for _, group := range groups {
		for _, metric := range group {
			kind := ""
			if metric.Histogram {
				kind = " histogram\n"
			}
			if !metric.Rare && !strings.Contains(served, "\n# TYPE "+metric.Name+kind) {
				t.Errorf("%s does not serve %s%s", program, metric.Name, kind)
			}
		}
	}
}
