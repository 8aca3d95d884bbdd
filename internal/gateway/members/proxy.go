package members

import (
	"context"
	"errors"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/tunnel"
)

// Proxy serves clusters/{name}/proxy.
type Proxy struct {
	directory *Directory
	proxy     httputil.ReverseProxy
}

// NewProxy returns a Proxy for the members of a directory.
func NewProxy(directory *Directory) *Proxy {
	p := &Proxy{directory: directory}
	p.proxy = httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      sender{},
		ModifyResponse: forward.SandboxResponse,
		FlushInterval:  -1, // logs and watches
		ErrorHandler:   failed,
		ErrorLog:       log.New(quiet{}, "", 0),
	}
	return p
}

type memberKey struct{}

// ServeHTTP forwards a request to the member that its path names.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, found := request.RequestInfoFrom(r.Context())
	caller, known := request.UserFrom(r.Context())
	if !found || !known {
		forward.WriteError(w, r, apierrors.NewInternalError(errors.New("the request was not authenticated before it was routed")))
		return
	}
	m, err := p.directory.member(info.Name)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	audit.AddAuditAnnotation(r.Context(), "cellplane.io/cluster", info.Name)
	defer forward.RecoverAborted(r)
	m = &member{connection: m.connection, name: info.Name, caller: caller, path: memberPath(info)}
	p.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), memberKey{}, m)))
}

// memberPath returns the path after /proxy.
func memberPath(info *request.RequestInfo) string {
	const before = 3 // "clusters", the name, "proxy"
	if len(info.Parts) <= before {
		return "/"
	}
	return "/" + strings.Join(info.Parts[before:], "/")
}

// member is the destination of a request.
type member struct {
	*connection
	name   string
	caller user.Info
	path   string
}

func rewrite(p *httputil.ProxyRequest) {
	m, _ := p.In.Context().Value(memberKey{}).(*member)
	p.Out.URL = &url.URL{Scheme: m.base.Scheme, Host: m.base.Host, Path: strings.TrimSuffix(m.base.Path, "/") + m.path, RawQuery: p.In.URL.RawQuery}
	p.Out.Host = ""
	impersonate(p.Out.Header, m.caller)
}

// impersonate sets the caller's name and groups, to which RBAC of the member binds. UID and extras belong to the control plane that
// issued them, and no role can allow impersonating all extras. It removes all identity headers that the client has sent.
func impersonate(header http.Header, caller user.Info) {
	forward.StripIdentity(header)
	header.Set(transport.ImpersonateUserHeader, caller.GetName())
	for _, group := range caller.GetGroups() {
		// The member adds system:authenticated itself, and the gateway's own group means nothing there.
		if group != user.AllAuthenticated && group != fleet.AuthorizedGroup {
			header.Add(transport.ImpersonateGroupHeader, group)
		}
	}
}

// sender sends each request to the member in its context.
type sender struct{}

func (sender) RoundTrip(r *http.Request) (*http.Response, error) {
	m, ok := r.Context().Value(memberKey{}).(*member)
	if !ok {
		return nil, errors.New("the request has no member")
	}
	if r.Header.Get("Upgrade") != "" {
		return m.upgrades.RoundTrip(r)
	}
	return m.requests.RoundTrip(r)
}

func failed(w http.ResponseWriter, r *http.Request, err error) {
	m, _ := r.Context().Value(memberKey{}).(*member)
	klog.FromContext(r.Context()).V(2).Info("forwarding to a member failed", "cluster", m.name, "err", err)
	if errors.Is(err, context.DeadlineExceeded) {
		forward.WriteError(w, r, apierrors.NewTimeoutError("cluster "+m.name+" did not answer in time", 1))
		return
	}
	why := ""
	if errors.Is(err, tunnel.ErrNone) {
		why = ": " + tunnel.ErrNone.Error()
	}
	forward.WriteError(w, r, apierrors.NewServiceUnavailable("cluster "+m.name+" cannot be reached"+why))
}

// quiet logs the proxy's messages about disconnected clients at a high level only.
type quiet struct{}

func (quiet) Write(b []byte) (int, error) {
	klog.V(4).Info(string(b))
	return len(b), nil
}

var clusters = clusterv1alpha1.GroupVersion.WithResource("clusters").GroupResource()
