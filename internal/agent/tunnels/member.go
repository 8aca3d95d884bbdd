package tunnels

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
)

// member passes requests of the federation on to the API server of the cluster, with the credentials of the agent.
type member struct {
	base               url.URL
	requests, upgrades http.RoundTripper
	proxy              httputil.ReverseProxy
}

func newMember(config *rest.Config) (*member, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	m := &member{base: *base}
	config = rest.CopyConfig(config)
	config.DisableCompression = true // bytes are passed on unchanged
	if m.requests, err = rest.TransportFor(config); err != nil {
		return nil, err
	}
	if m.upgrades, err = upgrading(config); err != nil {
		return nil, err
	}
	m.proxy = httputil.ReverseProxy{
		Rewrite: m.rewrite, Transport: m, FlushInterval: -1, // logs and watches
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			klog.FromContext(r.Context()).V(2).Info("a request through a tunnel failed", "err", err)
			refuse(w, apierrors.NewServiceUnavailable("the agent cannot reach the API server of its cluster"))
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	return m, nil
}

// ServeHTTP implements http.Handler.
func (m *member) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := check(r); err != nil {
		refuse(w, apierrors.NewBadRequest("the agent does not pass on a request that "+err.Error()))
		return
	}
	m.proxy.ServeHTTP(w, r)
}

// The headers of an identity that the agent passes on.
const (
	userHeader  = transport.ImpersonateUserHeader
	groupHeader = transport.ImpersonateGroupHeader
)

// check returns what a request says that the agent must not add its credentials to. Without a user it would be done with the rights of the agent, which
// has all of them.
func check(r *http.Request) error {
	if r.Method == http.MethodConnect || !strings.HasPrefix(r.URL.Path, "/") {
		return errors.New("is not for a path")
	}
	if users := r.Header.Values(userHeader); len(users) != 1 || users[0] == "" {
		return errors.New("does not impersonate a user")
	}
	for key := range r.Header {
		name := strings.ToLower(strings.ReplaceAll(key, "_", "-")) // some servers treat both alike
		known := key == userHeader || key == groupHeader
		if !known && (strings.HasPrefix(name, "impersonate-") || strings.HasPrefix(name, "x-remote-") || name == "authorization") {
			return fmt.Errorf("has the header %s", key)
		}
	}
	return nil
}

func (m *member) rewrite(p *httputil.ProxyRequest) {
	to := m.base
	to.Path = strings.TrimSuffix(m.base.Path, "/") + p.In.URL.Path
	if p.In.URL.RawPath != "" {
		to.RawPath = strings.TrimSuffix(m.base.EscapedPath(), "/") + p.In.URL.RawPath
	}
	to.RawQuery = p.In.URL.RawQuery
	p.Out.URL, p.Out.Host = &to, ""
	// A header that the client names as one of the connection would be removed, and with it the identity.
	p.Out.Header[userHeader] = p.In.Header[userHeader]
	if groups := p.In.Header[groupHeader]; groups != nil {
		p.Out.Header[groupHeader] = groups
	}
}

// RoundTrip sends a request over the connections for its protocol.
func (m *member) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		return m.upgrades.RoundTrip(r)
	}
	return m.requests.RoundTrip(r)
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.ErrStatus
	status.Kind, status.APIVersion = "Status", "v1"
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // the gateway may have gone
}
