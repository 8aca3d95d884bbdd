package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// dialTimeout bounds how long a dead address holds a request up.
	dialTimeout = 3 * time.Second
	// pingAfter and pingTimeout find a connection whose peer hangs: a request on it fails after their sum at the latest.
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
	// strikes is how many requests in a row may end without an answer before all connections are replaced. It catches what
	// pings cannot: a peer that keeps its connections alive and serves nothing.
	strikes = 5
	// defaultConnections is the number of connections to one API server. One connection is one TCP window, one TLS stream and
	// one lock; some more keep large lists out of the way of small requests.
	defaultConnections = 4
)

// Endpoint is an API server and the authenticating proxy's certificate for it.
type Endpoint struct {
	// Server is the https URL of the API server.
	Server string `json:"server"`
	// ServerName is the name in its certificate where it is not the URL's host.
	ServerName string `json:"serverName,omitempty"`
	// CA are the PEM certificates that vouch for it.
	CA []byte `json:"ca"`
	// Cert and Key are the PEM certificate and key of the authenticating proxy.
	Cert []byte `json:"cert"`
	Key  []byte `json:"key"`
}

// Upstream is an API server that requests are forwarded to. It is a http.RoundTripper: a request needs a path only.
type Upstream struct {
	name     string
	endpoint Endpoint
	base     *url.URL
	lanes    []*lane
	next     atomic.Uint32
	// upgrades speak HTTP/1.1, the only version in which a connection can be taken over.
	upgrades *lane
}

// NewUpstream prepares connections to an API server; none is opened yet. A count of 0 means a few.
func NewUpstream(name string, endpoint Endpoint, connections int) (*Upstream, error) {
	base, err := url.Parse(endpoint.Server)
	if err != nil {
		return nil, fmt.Errorf("reading the address of %s: %w", name, err)
	}
	if base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("reading the address of %s: %q must be an https URL with a host", name, endpoint.Server)
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	config, err := endpoint.tls()
	if err != nil {
		return nil, fmt.Errorf("preparing TLS for %s: %w", name, err)
	}
	if connections <= 0 {
		connections = defaultConnections
	}
	u := &Upstream{name: name, endpoint: endpoint, base: base, upgrades: newLane(name, config, false)}
	for range connections {
		u.lanes = append(u.lanes, newLane(name, config, true))
	}
	return u, nil
}

func (e Endpoint) tls() (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(e.CA) {
		return nil, errors.New("there is no certificate in the CA bundle")
	}
	cert, err := tls.X509KeyPair(e.Cert, e.Key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		RootCAs:            roots,
		ServerName:         e.ServerName,
		Certificates:       []tls.Certificate{cert},
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
	}, nil
}

// Name returns the name of the control plane.
func (u *Upstream) Name() string { return u.name }

// RoundTrip sends a request. Scheme, host and the path's prefix are filled in; the request must be the caller's own.
func (u *Upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Scheme, r.URL.Host, r.Host = u.base.Scheme, u.base.Host, u.base.Host
	if u.base.Path != "" {
		r.URL.Path, r.URL.RawPath = u.base.Path+r.URL.Path, ""
	}
	if r.Header.Get("Upgrade") != "" {
		return u.upgrades.roundTrip(r)
	}
	// Connections are taken in turn; a busy one costs its requests little, as they do not wait for one another.
	return u.lanes[u.next.Add(1)%uint32(len(u.lanes))].roundTrip(r)
}

// Close ends idle connections; those in use end with their requests.
func (u *Upstream) Close() {
	for _, lane := range u.lanes {
		lane.current.Load().CloseIdleConnections()
	}
	u.upgrades.current.Load().CloseIdleConnections()
}

// lane is one connection, or few if requests are more than a connection can carry.
type lane struct {
	name    string
	config  *tls.Config
	http2   bool
	current atomic.Pointer[http.Transport]
	silent  atomic.Int32
	replace sync.Mutex
}

func newLane(name string, config *tls.Config, http2 bool) *lane {
	l := &lane{name: name, config: config, http2: http2}
	l.current.Store(l.transport())
	return l
}

func (l *lane) transport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(l.http2)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:     l.config.Clone(),
		TLSHandshakeTimeout: 2 * dialTimeout,
		Protocols:           protocols,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: pingAfter + pingTimeout},
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: 32,
		// What the client accepts is what the API server is asked for: bytes are passed on as they are.
		DisableCompression: true,
		WriteBufferSize:    32 << 10,
		ReadBufferSize:     32 << 10,
	}
}

func (l *lane) roundTrip(r *http.Request) (*http.Response, error) {
	transport := l.current.Load()
	response, err := transport.RoundTrip(r)
	switch {
	case err == nil:
		if l.silent.Load() != 0 {
			l.silent.Store(0)
		}
	case errors.Is(err, context.DeadlineExceeded):
		if l.silent.Add(1) >= strikes {
			l.reset(transport)
		}
	}
	return response, err
}

// reset lets new requests open new connections; the old ones end with what is still running on them.
func (l *lane) reset(old *http.Transport) {
	l.replace.Lock()
	defer l.replace.Unlock()
	if !l.current.CompareAndSwap(old, l.transport()) {
		return
	}
	l.silent.Store(0)
	old.CloseIdleConnections()
	connectionResets.WithLabelValues(l.name).Inc()
}
