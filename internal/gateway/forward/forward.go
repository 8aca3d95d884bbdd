package forward

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fleet"
)

// Forwarder forwards requests unchanged, including upgrades and streams.
type Forwarder struct {
	proxy httputil.ReverseProxy
}

// New returns a Forwarder.
func New() *Forwarder {
	f := &Forwarder{}
	f.proxy = httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      sender{},
		ModifyResponse: SandboxResponse,
		BufferPool:     buffers{},
		ErrorHandler:   failed,
		ErrorLog:       log.New(quiet{}, "", 0),
	}
	return f
}

// destination is the control plane that a request goes to.
type destination struct {
	upstream *fleet.Upstream
	scope    Scope
}

type destinationKey struct{}

// To forwards a request to a control plane, and the answer to the client.
func (f *Forwarder) To(w http.ResponseWriter, r *http.Request, upstream *fleet.Upstream, scope Scope) {
	defer RecoverAborted(r)
	if r.Header.Get("Upgrade") == "" {
		plain(w, r, upstream, scope)
		return
	}
	f.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), destinationKey{}, destination{upstream, scope})))
}

// plain forwards a request that is not an upgrade, at less cost than httputil.ReverseProxy.
func plain(w http.ResponseWriter, r *http.Request, upstream *fleet.Upstream, scope Scope) {
	out := (&http.Request{
		Method: r.Method, URL: &url.URL{Path: r.URL.Path, RawQuery: r.URL.RawQuery}, Header: EndToEnd(r.Header),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: r.ContentLength,
	}).WithContext(r.Context())
	if r.Body != nil && r.ContentLength != 0 {
		out.Body = io.NopCloser(r.Body) // the server closes it
	}
	Prepare(out, scope)
	response, err := send(upstream, out)
	if err != nil {
		WriteError(w, r, failure(r, upstream.Name(), err))
		return
	}
	defer response.Body.Close()
	Answer(w, response)
}

// failure logs an error and returns the one to answer with.
func failure(r *http.Request, name string, err error) error {
	if !errors.Is(err, context.Canceled) {
		klog.FromContext(r.Context()).V(2).Info("forwarding failed", "to", name, "path", r.URL.Path, "err", err)
	}
	return Unanswered(name, r.Method, err)
}

// RecoverAborted must be deferred. It recovers from the panic with which a proxy aborts an incomplete answer if the client has disconnected, so that
// the panic is not logged.
func RecoverAborted(r *http.Request) {
	problem := recover()
	if problem == nil || (problem == http.ErrAbortHandler && r.Context().Err() != nil) { //nolint:errorlint // it is panicked with as it is
		return
	}
	panic(problem)
}

func rewrite(p *httputil.ProxyRequest) {
	to, _ := p.In.Context().Value(destinationKey{}).(destination)
	p.Out.URL.RawPath = "" // the decoded path was authorized
	Prepare(p.Out, to.scope)
}

// reviewsOfUsers are the requests with which users ask who they are.
const reviewsOfUsers = "/apis/authentication.k8s.io/"

// Prepare sets the identity of an outgoing request to the user in its context.
func Prepare(out *http.Request, scope Scope) {
	if user, found := request.UserFrom(out.Context()); found {
		SetIdentity(out.Header, user, scope)
		if !scope.Cell && strings.HasPrefix(out.URL.Path, reviewsOfUsers) {
			delete(out.Header, userHeader) // no policy applies to these, and the user would see the mark
		}
		return
	}
	StripIdentity(out.Header)
}

// sender sends each request to the destination in its context.
type sender struct{}

func (sender) RoundTrip(r *http.Request) (*http.Response, error) {
	to, ok := r.Context().Value(destinationKey{}).(destination)
	if !ok || to.upstream == nil {
		return nil, errors.New("the request has no destination")
	}
	return send(to.upstream, r)
}

func send(upstream *fleet.Upstream, r *http.Request) (*http.Response, error) {
	response, err := upstream.RoundTrip(r)
	return Accepted(upstream.Name(), response, err)
}

func failed(w http.ResponseWriter, r *http.Request, err error) {
	name := "the control plane"
	if to, ok := r.Context().Value(destinationKey{}).(destination); ok && to.upstream != nil {
		name = to.upstream.Name()
	}
	WriteError(w, r, failure(r, name, err))
}

// buffers are pooled.
type buffers struct{}

var pool = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

func (buffers) Get() []byte  { return *pool.Get().(*[]byte) }
func (buffers) Put(b []byte) { pool.Put(&b) }

// quiet logs the proxy's messages about disconnected clients at a high level only.
type quiet struct{}

func (quiet) Write(b []byte) (int, error) {
	klog.V(4).Info(string(b))
	return len(b), nil
}
