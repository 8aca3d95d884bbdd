package views

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/tunnel"
)

// Tunnels passes the tunnels of agents on to the cluster-gateways, one to each, where every gateway finds them.
type Tunnels struct {
	// Views has the cluster-gateways; it is nil if there are none.
	Views *Views
	// Next serves all other requests.
	Next http.Handler
	// Authenticator and Authorizer decide again and again whether an agent may have a tunnel.
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	// Stopping is closed when the gateway stops: agents then use another one.
	Stopping <-chan struct{}
}

// checkEvery is how long a tunnel stays open at most after its certificate, its key or its cluster is no longer accepted.
const checkEvery = 2 * time.Second

// ServeHTTP implements http.Handler.
func (h *Tunnels) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, found := request.RequestInfoFrom(r.Context())
	if !found || !info.IsResourceRequest || info.APIGroup != clusters.Group || info.Resource != clusters.Resource || info.Subresource != tunnel.Subresource {
		h.Next.ServeHTTP(w, r)
		return
	}
	switch {
	case h.Views == nil:
		forward.WriteError(w, r, apierrors.NewServiceUnavailable("this gateway has no cluster-gateway, which keeps the tunnels of agents"))
	case info.Verb != "create" || info.Name == "":
		forward.WriteError(w, r, apierrors.NewMethodNotSupported(clusters.GroupResource(), info.Verb))
	case r.Header.Get("Upgrade") != tunnel.Protocol:
		forward.WriteError(w, r, apierrors.NewBadRequest("a tunnel needs a connection that is upgraded to "+tunnel.Protocol))
	default:
		h.open(w, r, info.Name)
	}
}

var clusters = clusterv1alpha1.GroupVersion.WithResource("clusters")

// open opens a tunnel, and keeps it open while its agent is accepted.
func (h *Tunnels) open(w http.ResponseWriter, r *http.Request, cluster string) {
	if err := h.accepts(r, cluster); err != nil {
		forward.WriteError(w, r, apierrors.NewForbidden(clusters.GroupResource(), cluster, err))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		defer cancel()
		ticker := time.NewTicker(checkEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-h.Stopping:
				return
			case <-ticker.C:
			}
			if err := h.accepts(r, cluster); err != nil {
				klog.FromContext(ctx).Info("closing a tunnel, because its agent is no longer accepted", "cluster", cluster, "err", err)
				return
			}
		}
	}()
	defer forward.RecoverAborted(r)
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Body, p.Out.ContentLength = &url.URL{Path: tunnel.Path + cluster}, nil, 0
			p.Out.Header = http.Header{tunnel.HeldHeader: p.In.Header.Values(tunnel.HeldHeader), "Connection": {"Upgrade"}, "Upgrade": {tunnel.Protocol}}
		},
		Transport: newEnd{h.Views},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			forward.WriteError(w, r, err)
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

var errNotItsAgent = errors.New("only the agent of a cluster may open its tunnels, with its certificate")

// accepts returns nil if a request is that of the agent of the cluster. Like the handlers before, it authenticates and authorizes, but for the
// certificate itself, whoever it may impersonate.
func (h *Tunnels) accepts(r *http.Request, cluster string) error {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || time.Now().After(r.TLS.PeerCertificates[0].NotAfter) {
		return errNotItsAgent
	}
	response, ok, err := h.Authenticator.AuthenticateRequest(r)
	if err != nil {
		return err
	}
	if !ok || response.User.GetName() != names.AgentUser(cluster) {
		return errNotItsAgent
	}
	attributes, err := filters.GetAuthorizerAttributes(request.WithUser(r.Context(), response.User))
	if err != nil {
		return err
	}
	decision, reason, err := h.Authorizer.Authorize(r.Context(), attributes)
	if err != nil {
		return err
	}
	if decision != authorizer.DecisionAllow {
		return errors.New("the agent has no right to it: " + reason)
	}
	return nil
}

// newEnd sends a request for a tunnel to the first cluster-gateway that has none of the agent.
type newEnd struct{ *Views }

// RoundTrip implements http.RoundTripper.
func (e newEnd) RoundTrip(r *http.Request) (*http.Response, error) {
	held := false
	for _, replica := range e.all() {
		response, err := replica.upstream.RoundTrip(r.Clone(r.Context()))
		if err != nil {
			klog.FromContext(r.Context()).V(2).Info("a cluster-gateway takes no tunnel", "replica", replica.upstream.Name(), "err", err)
			continue
		}
		if response.StatusCode == http.StatusSwitchingProtocols {
			return response, nil
		}
		held = held || response.StatusCode == http.StatusConflict
		_ = response.Body.Close()
	}
	if held {
		return &http.Response{StatusCode: http.StatusNoContent, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	return nil, apierrors.NewServiceUnavailable("no cluster-gateway can be reached, which keeps the tunnels of agents")
}

// all returns the replicas of all shares, those that are ready first.
func (v *Views) all() []*replica {
	all := v.replicas()
	slices.SortStableFunc(all, func(a, b *replica) int {
		switch aReady, bReady := a.ready.Load(), b.ready.Load(); {
		case aReady == bReady:
			return 0
		case aReady:
			return -1
		}
		return 1
	})
	return all
}

// Dial connects to the API server of a cluster through a tunnel of its agent, at whichever cluster-gateway it ends.
func (v *Views) Dial(ctx context.Context, cluster string) (net.Conn, error) {
	for _, replica := range v.all() {
		response, connection, err := tunnel.Ask(ctx, replica.upstream, url.URL{Path: tunnel.ConnectionsPath + cluster}, tunnel.ConnectionProtocol, nil)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case connection != nil:
			return tunnel.Connection(connection), nil
		case err == nil && response.StatusCode != http.StatusNotFound:
			err = errors.New("it answered " + response.Status)
		}
		if err != nil {
			klog.FromContext(ctx).V(2).Info("a cluster-gateway does not connect to a cluster", "cluster", cluster, "replica", replica.upstream.Name(), "err", err)
		}
	}
	return nil, tunnel.ErrNone
}
