package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/cellplane/cellplane/internal/pki"
)

// frontProxyName is the only user whose forwarded identities are believed.
const frontProxyName = "cellplane-gateway"

// authorities are the certificate authorities of one control plane. They are
// separate so that no client of one kind passes for another.
type authorities struct {
	cluster    *pki.CA // the API server and its clients
	etcd       *pki.CA // etcd, its peers and its clients
	frontProxy *pki.CA // who may forward identities
	tokens     pki.Pair
}

func (a *authorities) ensure(dir string) (err error) {
	if a.cluster, err = pki.EnsureCA(dir, "ca"); err != nil {
		return err
	}
	if a.etcd, err = pki.EnsureCA(dir, "etcd-ca"); err != nil {
		return err
	}
	if a.frontProxy, err = pki.EnsureCA(dir, "front-proxy-ca"); err != nil {
		return err
	}
	a.tokens, err = pki.EnsureKey(dir, "service-accounts")
	return err
}

// loopback are the names under which local servers are reached.
var loopback = []string{"127.0.0.1", "localhost"}

// serving issues a server certificate for loopback.
func (c *ControlPlane) serving(name string) (pki.Pair, error) {
	return c.pki.cluster.Ensure(c.path("pki"), name+"-serving", pki.Leaf{CommonName: name, Hosts: loopback})
}

// kubeconfigFor writes the kubeconfig of a component and returns its path.
func (c *ControlPlane) kubeconfigFor(component, user string) (string, error) {
	config, err := c.ClientConfig(component, pki.Leaf{CommonName: user})
	if err != nil {
		return "", err
	}
	path := c.path(component + ".kubeconfig")
	return path, clientcmd.WriteToFile(*Kubeconfig(map[string]*rest.Config{c.config.Name: config}, c.config.Name), path)
}

// Kubeconfig returns a kubeconfig with a context per client configuration.
// Certificates are referred to by their files.
func Kubeconfig(contexts map[string]*rest.Config, current string) *clientcmdapi.Config {
	out := clientcmdapi.NewConfig()
	out.CurrentContext = current
	for name, config := range contexts {
		out.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthority: config.CAFile}
		out.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: config.CertFile, ClientKey: config.KeyFile}
		out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	return out
}

// healthCheck returns a check that GETs a URL with the given certificates.
func healthCheck(url, caFile string, client pki.Pair) func(context.Context) error {
	transport := sync.OnceValues(func() (*http.Client, error) {
		ca, err := os.ReadFile(caFile)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
		config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		if client.CertFile != "" {
			cert, err := tls.LoadX509KeyPair(client.CertFile, client.KeyFile)
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{cert}
		}
		// A connection per check: a kept one would outlive the server it belongs to.
		return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}, nil
	})
	return func(ctx context.Context) error {
		client, err := transport()
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(io.LimitReader(response.Body, 512))
			return fmt.Errorf("%s: %s", response.Status, body)
		}
		return nil
	}
}
