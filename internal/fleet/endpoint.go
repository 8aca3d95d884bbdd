package fleet

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// Endpoint is an API server and the authenticating proxy's certificate for it.
type Endpoint struct {
	// Server is the https URL of the API server.
	Server string `json:"server"`
	// ServerName is the name in its certificate if that is not the URL's host.
	ServerName string `json:"serverName,omitempty"`
	// APIServers is how many API servers there are behind the URL; 0 means one.
	APIServers int `json:"apiServers,omitempty"`
	// CA are the PEM certificates that the server's certificate is verified with.
	CA []byte `json:"ca"`
	// Cert and Key are the PEM certificate and key of the authenticating proxy.
	Cert []byte `json:"cert"`
	Key  []byte `json:"key"`
	// CAFile, CertFile and KeyFile are where CA, Cert and Key were read from, if they are files. Connections are replaced when the
	// files change.
	CAFile   string `json:"-"`
	CertFile string `json:"-"`
	KeyFile  string `json:"-"`
	// source, if set, is a kubeconfig with the CA, Cert and Key that are not in files.
	source *Kubeconfig
	// bare allows an endpoint without CA, which is verified with the authorities of the system, and without certificate.
	bare bool
}

// CellEndpoint returns the endpoint of a cell's API server. CheckSecret tells whether the credentials are complete.
func CellEndpoint(cell *cellplanev1alpha1.Cell, credentials *corev1.Secret) Endpoint {
	e := Endpoint{
		Server:     cell.Spec.Endpoint.Server,
		ServerName: cell.Spec.Endpoint.ServerName,
		APIServers: int(cell.Spec.Endpoint.APIServers),
		CA:         cell.Spec.Endpoint.CABundle,
		Cert:       credentials.Data[corev1.TLSCertKey],
		Key:        credentials.Data[corev1.TLSPrivateKeyKey],
	}
	if server, err := url.Parse(e.Server); err == nil && e.ServerName == "" {
		e.ServerName = server.Hostname() // the same for all API servers of the cell
	}
	return e
}

// EndpointFrom returns the endpoint that a client configuration leads to, with the certificate of that configuration. Data goes before files.
func EndpointFrom(config *rest.Config) Endpoint {
	e := Endpoint{Server: config.Host, ServerName: config.ServerName, CA: config.CAData, Cert: config.CertData, Key: config.KeyData}
	if len(e.CA) == 0 {
		e.CAFile = config.CAFile
	}
	if len(e.Cert) == 0 {
		e.CertFile = config.CertFile
	}
	if len(e.Key) == 0 {
		e.KeyFile = config.KeyFile
	}
	return e
}

// Config returns a client configuration that names a user in the authenticating proxy's headers. Requests are not limited in rate: the
// API server's own flow control does that.
func (e Endpoint) Config(user string, groups []string, extra map[string][]string) *rest.Config {
	config := &rest.Config{
		Host:      e.Server,
		UserAgent: rest.DefaultKubernetesUserAgent(),
		QPS:       -1,
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: e.ServerName,
			CAFile:     e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile,
		},
	}
	// client-go re-reads files only if it has no data.
	if e.CAFile == "" {
		config.CAData = e.CA
	}
	if e.CertFile == "" || e.KeyFile == "" {
		config.CertData, config.KeyData = e.Cert, e.Key
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper(user, "", groups, extra, next)
	})
	return config
}

// StoreCAKey is the key of the certificate authorities in the Secret with the credentials of a cell's store.
const StoreCAKey = corev1.ServiceAccountRootCAKey

// StoreTLS returns the TLS configuration for the store of a cell.
func StoreTLS(credentials *corev1.Secret) (*tls.Config, error) {
	if err := CheckSecret(credentials, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, StoreCAKey); err != nil {
		return nil, err
	}
	config, err := Endpoint{
		CA: credentials.Data[StoreCAKey], Cert: credentials.Data[corev1.TLSCertKey], Key: credentials.Data[corev1.TLSPrivateKeyKey],
	}.tlsConfig()
	if err != nil {
		return nil, fmt.Errorf("the Secret %s/%s cannot be used: %w", credentials.Namespace, credentials.Name, err)
	}
	return config, nil
}

// CheckSecret returns an error if a Secret lacks a key, or if its certificate and private key do not match.
func CheckSecret(secret *corev1.Secret, keys ...string) error {
	for _, key := range keys {
		if len(secret.Data[key]) == 0 {
			return fmt.Errorf("the Secret %s/%s has no %s", secret.Namespace, secret.Name, key)
		}
	}
	if _, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return fmt.Errorf("the Secret %s/%s has no usable %s and %s: %w", secret.Namespace, secret.Name, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	return nil
}

func (e Endpoint) equal(other Endpoint) bool {
	return e.Server == other.Server && e.ServerName == other.ServerName &&
		e.source == other.source && e.CAFile == other.CAFile && e.CertFile == other.CertFile && e.KeyFile == other.KeyFile &&
		e.sameCertificates(other)
}

func (e Endpoint) sameCertificates(other Endpoint) bool {
	return bytes.Equal(e.CA, other.CA) && bytes.Equal(e.Cert, other.Cert) && bytes.Equal(e.Key, other.Key)
}

func (e Endpoint) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: e.ServerName, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	if !e.bare || len(e.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(e.CA) {
			return nil, errors.New("there is no certificate in the CA bundle")
		}
	}
	if !e.bare || len(e.Cert) > 0 {
		certificate, err := tls.X509KeyPair(e.Cert, e.Key)
		if err != nil {
			return nil, fmt.Errorf("reading the client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

// LoadFiles reads the files of the endpoint.
func (e Endpoint) LoadFiles() (Endpoint, error) {
	if e.source != nil {
		config, err := e.source.read()
		if err != nil {
			return Endpoint{}, err
		}
		read, err := EndpointFrom(config).LoadFiles()
		if err != nil {
			return Endpoint{}, err
		}
		e.CA, e.Cert, e.Key = read.CA, read.Cert, read.Key
	}
	for _, part := range []struct {
		file string
		into *[]byte
	}{{e.CAFile, &e.CA}, {e.CertFile, &e.Cert}, {e.KeyFile, &e.Key}} {
		if part.file == "" {
			continue
		}
		var err error
		if *part.into, err = os.ReadFile(part.file); err != nil {
			return Endpoint{}, err
		}
	}
	return e, nil
}

// fileCheckInterval is how often certificate files are compared with what is in use.
const fileCheckInterval = time.Second

// ClientTLS is the TLS configuration for an endpoint. It changes when the endpoint's files do.
type ClientTLS struct {
	hasFiles bool
	config   atomic.Pointer[tls.Config]
	checkAt  atomic.Int64 // in Unix nanoseconds

	mu       sync.Mutex
	endpoint Endpoint // what config was made from
}

// ClientTLS returns the TLS configuration for the endpoint.
func (e Endpoint) ClientTLS() (*ClientTLS, error) {
	config, err := e.tlsConfig()
	if err != nil {
		return nil, err
	}
	t := &ClientTLS{endpoint: e, hasFiles: e.source != nil || e.CAFile != "" || e.CertFile != "" || e.KeyFile != ""}
	t.config.Store(config)
	return t, nil
}

// Config returns the configuration for new connections. It is another one after a file has changed; connections that were made with the
// former one should be replaced then, as servers check the certificate with every request.
func (t *ClientTLS) Config() *tls.Config {
	if t.hasFiles && time.Now().UnixNano() >= t.checkAt.Load() {
		t.reload()
	}
	return t.config.Load()
}

// reload reads the files. While they cannot be used, for example because only one has been renewed so far, the configuration stays.
func (t *ClientTLS) reload() {
	if !t.mu.TryLock() {
		return // another request does it
	}
	defer t.mu.Unlock()
	defer func() { t.checkAt.Store(time.Now().Add(fileCheckInterval).UnixNano()) }()
	endpoint, err := t.endpoint.LoadFiles()
	if err == nil && endpoint.sameCertificates(t.endpoint) {
		return
	}
	var config *tls.Config
	if err == nil {
		config, err = endpoint.tlsConfig()
	}
	if err != nil {
		klog.Background().Error(err, "cannot reload certificate files, using the former certificates", "server", t.endpoint.Server)
		return
	}
	// The new configuration has a session cache of its own: a resumed session would still have the former certificate.
	t.endpoint = endpoint
	t.config.Store(config)
}
