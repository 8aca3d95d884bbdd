package short

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/cellplane/cellplane/internal/fleet"
)

const (
	// dialTimeout bounds how long a dead address delays a request.
	dialTimeout = 3 * time.Second
	// maxConnections is how many connections for short requests are open at once; further requests take the ordinary path.
	maxConnections = 32
	// idleTime is how long an idle connection is kept. API servers keep them for longer.
	idleTime = 45 * time.Second
	// answerWait is how long to wait for a response before the request takes the ordinary path, where pings detect a dead connection.
	answerWait = 3 * time.Second
	// bodyWait is how long the body of a response may take.
	bodyWait = 15 * time.Second
	// maxHead bounds the headers of a response.
	maxHead = 1 << 20
)

// ErrOrdinaryPath means that a request has to take the ordinary path.
var ErrOrdinaryPath = errors.New("the request was not answered on a connection for short requests")

// Connections are HTTP/1.1 connections on which the caller's goroutine sends the request and reads the response. That saves the
// multiplexing and goroutine switches that make up most of the cost of a small request. It is for idempotent requests without a body.
type Connections struct {
	endpoint fleet.Endpoint
	host     string
	address  string
	tls      *fleet.ClientTLS

	open   atomic.Int32
	mu     sync.Mutex
	idle   []*connection // the one used last is at the end
	closed bool
}

// connection carries one request at a time.
type connection struct {
	*tls.Conn
	config *tls.Config // that it was made with
	head   io.LimitedReader
	reader *bufio.Reader
	writer *bufio.Writer
	used   time.Time
}

// New prepares connections to an API server; none is opened yet.
func New(endpoint fleet.Endpoint) (*Connections, error) {
	given := endpoint
	server, err := url.Parse(endpoint.Server)
	if err != nil {
		return nil, fmt.Errorf("reading the address %q: %w", endpoint.Server, err)
	}
	if server.Scheme != "https" || server.Hostname() == "" || strings.Trim(server.Path, "/") != "" {
		return nil, fmt.Errorf("short requests cannot be sent to %q: it must be an https URL without a path", endpoint.Server)
	}
	endpoint.ServerName = cmp.Or(endpoint.ServerName, server.Hostname())
	config, err := endpoint.ClientTLS()
	if err != nil {
		return nil, fmt.Errorf("preparing TLS for %s: %w", endpoint.Server, err)
	}
	c := &Connections{endpoint: given, host: server.Host, address: server.Host, tls: config}
	if server.Port() == "" {
		c.address = net.JoinHostPort(server.Hostname(), "443")
	}
	return c, nil
}

// RoundTrip sends a request. It returns ErrOrdinaryPath if the ordinary path is worth trying. A request needs a path only.
func (s *Connections) RoundTrip(r *http.Request) (*http.Response, error) {
	if !sendable(r) {
		return nil, ErrOrdinaryPath
	}
	r.URL.Scheme, r.URL.Host, r.Host = "https", s.host, s.host
	for {
		taken, fresh, err := s.take(r.Context())
		if err != nil {
			return nil, err
		}
		response, err := s.exchange(taken, r)
		switch {
		case err == nil:
			return response, nil
		case r.Context().Err() != nil:
			return nil, r.Context().Err()
		case fresh || errors.Is(err, os.ErrDeadlineExceeded):
			return nil, fmt.Errorf("%w: %w", ErrOrdinaryPath, err)
		}
		// The server may have closed an idle connection; the request is idempotent.
	}
}

// sendable checks what an http.Transport checks: no header may contain a line break.
func sendable(r *http.Request) bool {
	if r.Body != nil && r.Body != http.NoBody {
		return false
	}
	for key, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(key) {
			return false
		}
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				return false
			}
		}
	}
	return true
}

// take returns an unused connection, and whether it is new.
func (s *Connections) take(ctx context.Context) (*connection, bool, error) {
	config := s.tls.Config()
	if kept := s.takeIdle(config); kept != nil {
		return kept, false, nil
	}
	if s.open.Add(1) > maxConnections {
		s.open.Add(-1)
		return nil, false, ErrOrdinaryPath
	}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	http1 := config.Clone()
	http1.NextProtos = []string{"http/1.1"}
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}, Config: http1}
	opened, err := dialer.DialContext(ctx, "tcp", s.address)
	if err != nil {
		s.open.Add(-1)
		return nil, false, fmt.Errorf("%w: %w", ErrOrdinaryPath, err)
	}
	c := &connection{Conn: opened.(*tls.Conn), config: config}
	c.head.R = c.Conn
	c.reader, c.writer = bufio.NewReaderSize(&c.head, 8<<10), bufio.NewWriterSize(c.Conn, 4<<10)
	return c, true, nil
}

// takeIdle returns an idle connection, if there is one that was made with the current certificates.
func (s *Connections) takeIdle(config *tls.Config) *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.idle) > 0 {
		last := s.idle[len(s.idle)-1]
		s.idle = s.idle[:len(s.idle)-1]
		if last.config == config && time.Since(last.used) < idleTime {
			return last
		}
		s.drop(last)
	}
	return nil
}

// exchange sends a request and reads the response up to its body.
func (s *Connections) exchange(c *connection, r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	response, err := c.ask(r)
	if err != nil {
		stop()
		s.drop(c)
		return nil, err
	}
	response.Body = &body{ReadCloser: response.Body, ctx: ctx, release: func(complete bool) {
		// A connection that was cancelled, or that holds more than the response, must not be reused.
		if stop() && complete && !response.Close && c.reader.Buffered() == 0 {
			s.put(c)
			return
		}
		s.drop(c)
	}}
	return response, nil
}

func (c *connection) ask(r *http.Request) (*http.Response, error) {
	if err := c.within(r.Context(), answerWait); err != nil {
		return nil, err
	}
	if err := r.Write(c.writer); err != nil {
		return nil, err
	}
	if err := c.writer.Flush(); err != nil {
		return nil, err
	}
	c.head.N = maxHead
	response, err := http.ReadResponse(c.reader, r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < http.StatusOK {
		return nil, fmt.Errorf("unexpected interim response %s", response.Status)
	}
	c.head.N = math.MaxInt64 // the reader of the body bounds it
	return response, c.within(r.Context(), bodyWait)
}

// within sets the deadline of the next step. It may have overwritten the deadline that the end of the context sets, so it checks that too.
func (c *connection) within(ctx context.Context, wait time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	return ctx.Err()
}

// put keeps a connection for the next request.
func (s *Connections) put(c *connection) {
	c.used = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.drop(c)
		return
	}
	s.idle = append(s.idle, c)
	if oldest := s.idle[0]; c.used.Sub(oldest.used) > idleTime {
		s.idle = s.idle[1:]
		s.drop(oldest)
	}
}

func (s *Connections) drop(c *connection) {
	s.open.Add(-1)
	_ = c.Conn.Close()
}

// Close closes idle connections; those in use are closed after their requests.
func (s *Connections) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.idle {
		s.drop(c)
	}
	s.idle, s.closed = nil, true
}

// body releases the connection when it is closed.
type body struct {
	io.ReadCloser
	ctx     context.Context
	release func(complete bool)
	ended   bool
	closed  bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		b.ended = true
	case err != nil && b.ctx.Err() != nil:
		err = b.ctx.Err()
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	if !b.closed {
		b.closed = true
		b.release(b.ended)
	}
	return nil
}
