package fleet

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Kubeconfig is a context of a kubeconfig file. Connections made from it follow the file: certificates, keys, authorities and tokens that are
// renewed on disk, within the kubeconfig or in files that it names, are used within seconds.
type Kubeconfig struct {
	file, context string
	initial       *rest.Config

	mu       sync.Mutex
	raw      []byte // what config was made from
	config   *rest.Config
	followed *rest.Config
}

// ReadKubeconfig reads a context of a kubeconfig file; "" is the current one.
func ReadKubeconfig(file, context string) (*Kubeconfig, error) {
	k := &Kubeconfig{file: file, context: context}
	config, err := k.read()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	k.initial = config
	if !followable(config) {
		k.followed = rest.CopyConfig(config)
		return k, nil
	}
	endpoint, err := k.Endpoint().LoadFiles()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	follower, err := newFollower(endpoint, config, k.token)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	k.followed = rest.CopyConfig(config)
	k.followed.Host = endpoint.Server
	k.followed.TLSClientConfig = rest.TLSClientConfig{}
	k.followed.Proxy = nil // that of the follower
	k.followed.Transport = follower
	if k.followed.BearerTokenFile == "" {
		k.followed.BearerToken = "" // the follower sends it
	}
	return k, nil
}

// followable reports whether the credentials of a configuration are certificates and tokens. Plug-ins renew theirs themselves.
func followable(config *rest.Config) bool {
	return config.ExecProvider == nil && config.AuthProvider == nil && !config.Insecure && !strings.HasPrefix(config.Host, "http://")
}

// Config returns a client configuration that follows the file. The caller may change it, except for its Transport.
func (k *Kubeconfig) Config() *rest.Config { return rest.CopyConfig(k.followed) }

// Endpoint returns the API server, with a certificate that follows the file.
func (k *Kubeconfig) Endpoint() Endpoint {
	e := EndpointFrom(k.initial)
	if !strings.Contains(e.Server, "://") {
		e.Server = "https://" + e.Server
	}
	return Endpoint{Server: e.Server, ServerName: e.ServerName, source: k, bare: true}
}

// read returns the configuration in the file, which is parsed only if it has changed.
func (k *Kubeconfig) read() (*rest.Config, error) {
	raw, err := os.ReadFile(k.file)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.config != nil && bytes.Equal(raw, k.raw) {
		return k.config, nil
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: k.file}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: k.context}).ClientConfig()
	if err != nil {
		return nil, err
	}
	k.raw, k.config = raw, config
	return config, nil
}

// token returns the token in the file itself. Clients re-read a token that is in a file of its own.
func (k *Kubeconfig) token() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.config.BearerTokenFile != "" {
		return ""
	}
	return k.config.BearerToken
}

// follower sends requests with the present certificates of an endpoint.
type follower struct {
	tls      *ClientTLS
	proxy    func(*http.Request) (*url.URL, error)
	compress bool
	token    func() string

	current atomic.Pointer[followed]
	renew   sync.Mutex
}

// followed is a transport and what it was made from.
type followed struct {
	*http.Transport
	// upgrades speaks HTTP/1.1, the only version in which a connection can be taken over.
	upgrades *http.Transport
	tls      *connection
}

// CloseIdleConnections closes the connections that no request uses.
func (f *followed) CloseIdleConnections() {
	f.Transport.CloseIdleConnections()
	f.upgrades.CloseIdleConnections()
}

func newFollower(endpoint Endpoint, config *rest.Config, token func() string) (*follower, error) {
	f := &follower{proxy: config.Proxy, compress: !config.DisableCompression, token: token}
	if f.proxy == nil {
		f.proxy = http.ProxyFromEnvironment
	}
	var err error
	if f.tls, err = endpoint.ClientTLS(); err != nil {
		return nil, err
	}
	f.current.Store(f.transport())
	return f, nil
}

// VerifiedBy returns a transport that verifies servers with the authorities in a file, and follows the file.
func VerifiedBy(caFile string) (http.RoundTripper, error) {
	endpoint, err := Endpoint{CAFile: caFile, bare: true}.LoadFiles()
	if err != nil {
		return nil, err
	}
	if len(endpoint.CA) == 0 {
		return nil, fmt.Errorf("there is no certificate in %s", caFile)
	}
	return newFollower(endpoint, &rest.Config{}, func() string { return "" })
}

func (f *follower) transport() *followed {
	c := &connection{config: f.tls.Config(), http2: true}
	t, upgrades := c.transport(), (&connection{config: c.config}).transport()
	t.Proxy, upgrades.Proxy = f.proxy, f.proxy
	t.DisableCompression = !f.compress
	t.HTTP2.MaxReceiveBufferPerStream = 0 // a client reads what it asks for
	return &followed{t, upgrades, c}
}

// RoundTrip implements http.RoundTripper.
func (f *follower) RoundTrip(r *http.Request) (*http.Response, error) {
	transport := f.latest()
	if token := f.token(); token != "" && r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if r.Header.Get("Upgrade") != "" {
		return transport.upgrades.RoundTrip(r)
	}
	return transport.RoundTrip(r)
}

// latest returns the transports for the present certificates. Streams on a former one continue.
func (f *follower) latest() *followed {
	if now := f.current.Load(); now.tls.config == f.tls.Config() {
		return now
	}
	f.renew.Lock()
	defer f.renew.Unlock()
	now := f.current.Load()
	if now.tls.config != f.tls.Config() {
		former := now
		now = f.transport()
		f.current.Store(now)
		former.CloseIdleConnections()
	}
	return now
}

// CloseIdleConnections serves http.Client.
func (f *follower) CloseIdleConnections() { f.current.Load().CloseIdleConnections() }
