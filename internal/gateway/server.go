package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/expiry"
	"github.com/cellplane/cellplane/internal/gateway/writerlease"
)

// Server is a gateway. Create it with Config.NewServer.
type Server struct {
	config  *Config
	generic *genericserver.GenericAPIServer
}

// NewServer returns a Server that is not running yet.
func (c *Config) NewServer() (*Server, error) {
	generic, err := c.generic.Complete(nil).New("cellplane-gateway", genericserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("creating the server: %w", err)
	}
	s := &Server{config: c, generic: generic}
	if err := generic.AddReadyzChecks(
		healthz.NamedCheck("topology", known(c.topology.Known(), "the cells are not known yet")),
		healthz.NamedCheck("discovery", known(c.kinds.Known(), "the API of the hub is not known yet")),
		healthz.NamedCheck("rbac", holds(c.authorizer.Ready, "the RBAC objects are not known yet")),
		healthz.NamedCheck("hub-identity", c.identity.Rejected),
		healthz.NamedCheck("release", func(*http.Request) error { return c.skew.Problem() }),
		healthz.NamedCheck("served-apis", holds(c.served.Known, "the ServedAPIs are not known yet")),
		healthz.NamedCheck("protection", holds(c.policies.Known, "the protection policies are not known yet")),
	); err != nil {
		return nil, fmt.Errorf("creating the server: %w", err)
	}
	return s, generic.AddPostStartHook("cellplane-follow-hub", s.startWatching)
}

// known is a health check that succeeds once a channel is closed.
func known(channel <-chan struct{}, problem string) func(*http.Request) error {
	return func(*http.Request) error {
		select {
		case <-channel:
			return nil
		default:
			return errors.New(problem)
		}
	}
}

// holds is a health check that succeeds while a condition is true.
func holds(condition func() bool, problem string) func(*http.Request) error {
	return func(*http.Request) error {
		if condition() {
			return nil
		}
		return errors.New(problem)
	}
}

// startWatching starts to watch the hub and the cells. The gateway serves meanwhile.
func (s *Server) startWatching(hook genericserver.PostStartHookContext) error {
	ctx := klog.NewContext(hook.Context, klog.Background().WithName("gateway"))
	context.AfterFunc(ctx, expiry.Follow(s.config.topology.Certificates))
	s.config.informers.Start(ctx.Done())
	go s.config.kinds.Run(ctx)
	go s.config.members.Run(ctx)
	go s.config.documents.Run(ctx)
	go s.config.policies.Run(ctx)
	go s.config.served.Run(ctx)
	go s.config.identity.Run(ctx)
	go s.config.skew.Run(ctx)
	if s.config.lease != nil {
		reporter := &writerlease.Reporter{Keeper: s.config.lease, Hub: s.config.hubClient, Name: writerlease.NewName()}
		go s.config.lease.Run(ctx)
		go reporter.Run(ctx)
	}
	go s.config.backups.Run(ctx)
	go s.config.router.Sample(ctx)
	if s.config.views != nil {
		go s.config.views.Run(ctx)
		go func() { _ = s.config.shares.Run(ctx) }() // its source never fails
	}
	if s.config.rights != nil {
		go s.config.rights.Run(ctx, s.config.authorizer)
	}
	go func() {
		if err := s.config.topology.Run(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "watching the topology ended, serving with the last one")
		}
	}()
	return nil
}

// Addr returns the address the gateway listens on.
func (s *Server) Addr() net.Addr { return s.generic.SecureServingInfo.Listener.Addr() }

// Run serves until the context ends, and returns when the running requests have ended.
func (s *Server) Run(ctx context.Context) error {
	go tuneCollector(ctx)
	defer s.config.stop()
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(s.config.options.ShutdownDelay, func() { close(s.config.stopping) })
	})()
	return s.generic.PrepareRun().RunWithContext(ctx)
}
