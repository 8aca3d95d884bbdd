package fleet

import (
	"context"
	"crypto/tls"
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
	// dialTimeout bounds how long a dead address delays a request.
	dialTimeout = 3 * time.Second
	// pingAfter and pingTimeout detect a connection whose peer hangs: a request on it fails after their sum at the latest.
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
	// maxTimeouts is how many consecutive requests may time out before a connection is replaced. This catches what pings cannot: a peer
	// that keeps its connections alive and serves nothing.
	maxTimeouts = 5
	// defaultConnections is the number of connections to one API server. One connection is one TCP window, one TLS stream and
	// one lock; with several, large lists do not delay small requests.
	defaultConnections = 4
	// StreamBuffer is the most that a connection holds of an answer that is not read, in bytes. Go's default is 4 MiB, which slow clients
	// of a gateway multiply.
	StreamBuffer = 128 << 10
)

// Upstream is an API server that requests are forwarded to. It is an http.RoundTripper: a request needs a path only.
type Upstream struct {
	name        string
	endpoint    Endpoint
	base        *url.URL
	connections int
	tls         *ClientTLS
	next        atomic.Uint32

	pool  atomic.Pointer[pool]
	renew sync.Mutex // held while the pool is replaced
}

// NewUpstream prepares connections to an API server; none is opened yet. A count of 0 means the default.
func NewUpstream(name string, endpoint Endpoint, connections int) (*Upstream, error) {
	base, err := url.Parse(endpoint.Server)
	if err != nil {
		return nil, fmt.Errorf("reading the address of %s: %w", name, err)
	}
	if base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("reading the address of %s: %q must be an https URL with a host", name, endpoint.Server)
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	config, err := endpoint.ClientTLS()
	if err != nil {
		return nil, fmt.Errorf("preparing TLS for %s: %w", name, err)
	}
	if connections <= 0 {
		connections = defaultConnections
	}
	u := &Upstream{name: name, endpoint: endpoint, base: base, connections: connections, tls: config}
	u.pool.Store(newPool(name, config.Config(), connections))
	return u, nil
}

// Name returns the name of the control plane.
func (u *Upstream) Name() string { return u.name }

// RoundTrip sends a request. It sets the scheme, the host and the path's prefix; the request must be the caller's own.
func (u *Upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Scheme, r.URL.Host, r.Host = u.base.Scheme, u.base.Host, u.base.Host
	if u.base.Path != "" {
		r.URL.Path, r.URL.RawPath = u.base.Path+r.URL.Path, ""
	}
	pool := u.current()
	if r.Header.Get("Upgrade") != "" {
		return pool.upgrades.roundTrip(r)
	}
	// Round robin is good enough: requests on a busy connection do not wait for one another.
	return pool.connections[u.next.Add(1)%uint32(len(pool.connections))].roundTrip(r)
}

// current returns the connections, and replaces them if certificate files have been renewed.
func (u *Upstream) current() *pool {
	if p := u.pool.Load(); p.config == u.tls.Config() {
		return p
	}
	u.renew.Lock()
	defer u.renew.Unlock()
	p, config := u.pool.Load(), u.tls.Config()
	if p.config != config {
		renewed := newPool(u.name, config, u.connections)
		u.pool.Store(renewed)
		p.closeIdle()
		p = renewed
	}
	return p
}

// Close closes idle connections; those in use are closed after their requests.
func (u *Upstream) Close() { u.pool.Load().closeIdle() }

// pool is the connections that are made with one TLS configuration.
type pool struct {
	config      *tls.Config
	connections []*connection
	// upgrades speaks HTTP/1.1, the only version in which a connection can be taken over.
	upgrades *connection
}

func newPool(name string, config *tls.Config, connections int) *pool {
	p := &pool{config: config, upgrades: newConnection(name, config, false)}
	for range connections {
		p.connections = append(p.connections, newConnection(name, config, true))
	}
	return p
}

func (p *pool) closeIdle() {
	for _, c := range p.connections {
		c.current.Load().CloseIdleConnections()
	}
	p.upgrades.current.Load().CloseIdleConnections()
}

// connection is one connection, or a few if there are more requests than one can carry.
type connection struct {
	name     string
	config   *tls.Config
	http2    bool
	current  atomic.Pointer[http.Transport]
	timeouts atomic.Int32 // consecutive
	replace  sync.Mutex
}

func newConnection(name string, config *tls.Config, http2 bool) *connection {
	c := &connection{name: name, config: config, http2: http2}
	c.current.Store(c.transport())
	return c
}

func (c *connection) transport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(c.http2)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:     c.config.Clone(),
		TLSHandshakeTimeout: 2 * dialTimeout,
		Protocols:           protocols,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: pingAfter + pingTimeout, MaxReceiveBufferPerStream: StreamBuffer,
		},
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: 32,
		// The API server gets the client's Accept-Encoding, and its bytes are passed on unchanged.
		DisableCompression: true,
		WriteBufferSize:    32 << 10,
		ReadBufferSize:     32 << 10,
	}
}

func (c *connection) roundTrip(r *http.Request) (*http.Response, error) {
	transport := c.current.Load()
	response, err := transport.RoundTrip(r)
	switch {
	case err == nil:
		if c.timeouts.Load() != 0 {
			c.timeouts.Store(0)
		}
	case errors.Is(err, context.DeadlineExceeded):
		if c.timeouts.Add(1) >= maxTimeouts {
			c.reset(transport)
		}
	}
	return response, err
}

// reset makes new requests use a new connection; the old one is closed after the requests that still run on it.
func (c *connection) reset(old *http.Transport) {
	c.replace.Lock()
	defer c.replace.Unlock()
	if !c.current.CompareAndSwap(old, c.transport()) {
		return
	}
	c.timeouts.Store(0)
	old.CloseIdleConnections()
	connectionResets.WithLabelValues(c.name).Inc()
}
