package credentials

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/connrotation"
)

// transport sends requests to the gateway with the present certificate of the agent. It verifies the gateway with the present CA.
type transport struct {
	certificate func() *tls.Certificate
	dialer      *connrotation.Dialer
	current     atomic.Pointer[verifying]
}

// verifying is a transport and the CA that it verifies with.
type verifying struct {
	*http.Transport
	// upgrades speaks HTTP/1.1, the only version in which a connection can be taken over.
	upgrades *http.Transport
	ca       []byte
}

func newTransport(gateway *clientcmdapi.Cluster, certificate func() *tls.Certificate) (*transport, error) {
	if gateway.InsecureSkipTLSVerify {
		return nil, errors.New("the kubeconfig of the agent does not verify the gateway")
	}
	t := &transport{certificate: certificate, dialer: connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext)}
	return t, t.trust(gateway)
}

// trust verifies the gateway with the CA of a kubeconfig from now on. Connections that were verified with another are closed. Only one goroutine may
// call it.
func (t *transport) trust(gateway *clientcmdapi.Cluster) error {
	ca := gateway.CertificateAuthorityData
	if len(ca) == 0 && gateway.CertificateAuthority != "" {
		var err error
		if ca, err = os.ReadFile(gateway.CertificateAuthority); err != nil {
			return fmt.Errorf("reading the CA of the gateway: %w", err)
		}
	}
	former := t.current.Load()
	if former != nil && bytes.Equal(former.ca, ca) {
		return nil
	}
	settings, err := rest.TLSConfigFor(&rest.Config{Host: gateway.Server, TLSClientConfig: rest.TLSClientConfig{ServerName: gateway.TLSServerName, CAData: ca}})
	if err != nil {
		return fmt.Errorf("reading the CA of the gateway: %w", err)
	}
	if settings == nil {
		settings = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return t.certificate(), nil }
	transport := func() *http.Transport {
		return &http.Transport{
			Proxy:               utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment),
			TLSHandshakeTimeout: 10 * time.Second,
			TLSClientConfig:     settings.Clone(),
			MaxIdleConnsPerHost: 25,
			DialContext:         t.dialer.DialContext,
		}
	}
	t.current.Store(&verifying{ca: ca, Transport: utilnet.SetTransportDefaults(transport()), upgrades: transport()})
	if former != nil {
		t.dialer.CloseAll()
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		return t.current.Load().upgrades.RoundTrip(r)
	}
	return t.current.Load().RoundTrip(r)
}

// CloseIdleConnections serves http.Client.
func (t *transport) CloseIdleConnections() { t.current.Load().CloseIdleConnections() }
