package gateway_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/pki"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testRenewedCertificates lets the certificates expire by which a gateway reaches the hub. The gateway is not ready then, and is again
// when they are renewed on disk.
func testRenewedCertificates(t *testing.T, w *world) {
	dir := t.TempDir()
	own := pki.Pair{CertFile: filepath.Join(dir, "own.crt"), KeyFile: filepath.Join(dir, "own.key")}
	proxy := pki.Pair{CertFile: filepath.Join(dir, "proxy.crt"), KeyFile: filepath.Join(dir, "proxy.key")}
	renew := func(validity time.Duration) {
		t.Helper()
		issue(t, w.Hub, "ca", own, pkix.Name{CommonName: "renewed", Organization: []string{"system:masters"}}, validity)
		issue(t, w.Hub, "front-proxy-ca", proxy, pkix.Name{CommonName: "cellplane-gateway"}, validity)
	}
	renew(time.Hour)
	options := gatewaytest.Options(t, w.Federation)
	hub := &rest.Config{Host: w.Hub.URL(), TLSClientConfig: rest.TLSClientConfig{CAFile: w.Hub.CAFile(), CertFile: own.CertFile, KeyFile: own.KeyFile}}
	if err := clientcmd.WriteToFile(*controlplane.Kubeconfig(map[string]*rest.Config{"hub": hub}, "hub"), options.HubKubeconfig); err != nil {
		t.Fatal(err)
	}
	options.HubProxyCert, options.HubProxyKey = proxy.CertFile, proxy.KeyFile
	g := gatewaytest.Run(t, w.Federation, options)
	config, client := g.Config(t), g.Client(t)
	readiness := func() (int, string) {
		response := send(t, config, http.MethodGet, "/readyz?verbose", nil, "")
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	ask := func() error {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceDefault, metav1.GetOptions{})
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}

	renew(time.Second)
	testenv.Eventually(t, "the gateway is not ready", func(context.Context) (bool, error) {
		code, body := readiness()
		return code != http.StatusOK && strings.Contains(body, "[-]hub-identity"), fmt.Errorf("%d %s", code, body)
	})
	if err := ask(); err == nil {
		t.Error("a request was forwarded to the hub with an expired certificate")
	}

	renew(time.Hour)
	testenv.Eventually(t, "the gateway is ready again", func(context.Context) (bool, error) {
		code, body := readiness()
		return code == http.StatusOK, fmt.Errorf("%d %s", code, body)
	})
	if err := ask(); err != nil {
		t.Errorf("after the certificates were renewed: %v", err)
	}
}

// issue replaces a client certificate by one that a CA of the control plane signs.
func issue(t *testing.T, plane *controlplane.ControlPlane, authority string, pair pki.Pair, subject pkix.Name, validity time.Duration) {
	t.Helper()
	file := filepath.Join(filepath.Dir(plane.CAFile()), authority)
	ca, err := tls.LoadX509KeyPair(file+".crt", file+".key")
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: subject, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		pair.CertFile: {Type: "CERTIFICATE", Bytes: certificate},
		pair.KeyFile:  {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
