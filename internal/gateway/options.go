package gateway

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/expiry"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/tokens"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/quorum"
)

// Options are the flags of a gateway.
type Options struct {
	// HubKubeconfig is the identity of the gateway at the hub. With it the gateway reads RBAC, FlowSchemas, cells and policies, and
	// reviews tokens.
	HubKubeconfig string
	// HubProxyCert and HubProxyKey are the front-proxy certificate with which it forwards users' requests to the hub.
	HubProxyCert, HubProxyKey string
	// CellsFile is a file with the topology. Without it the gateway watches the hub's CellTopology and Cells.
	CellsFile string
	// StateDir is the directory for the files that the gateway needs to start while the hub is down.
	StateDir string
	// Expose lists the resources to show in discovery, as resource.group; none means all.
	Expose []string
	// WriterLease is how long the gateway may write after a majority of the cells and the hub has confirmed its topology.
	WriterLease time.Duration
	// Connections is the number of connections to each control plane.
	Connections int

	MaxRequestsInFlight         int
	MaxMutatingRequestsInFlight int
	// MaxStreamsPerUser bounds the watches and other long-running requests of one user; 0 means no limit.
	MaxStreamsPerUser int
	// MemoryBudget bounds the memory that requests and answers are held in; 0 means no limit.
	MemoryBudget   resource.QuantityValue
	RequestTimeout time.Duration
	ShutdownDelay  time.Duration
	GoawayChance   float64
	TokenCacheTTL  time.Duration

	// Tokens configures the tokens that the gateway verifies without the hub.
	Tokens        tokens.Options
	ClientCA      genericoptions.ClientCertAuthenticationOptions
	SecureServing *genericoptions.SecureServingOptionsWithLoopback
	Audit         *genericoptions.AuditOptions
	Features      *genericoptions.FeatureOptions

	// Console serves the web console.
	Console bool

	// Views are the cluster-gateways, which serve the objects of members.
	Views ViewOptions

	// Source replaces CellsFile and the hub as the source of the topology, for tests.
	Source topology.Source
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	serving := genericoptions.NewSecureServingOptions()
	serving.BindPort = 6443
	serving.HTTP2MaxStreamsPerConnection = 1000
	audit := genericoptions.NewAuditOptions()
	// A change whose record cannot be written is refused.
	audit.LogOptions.BatchOptions.Mode = genericoptions.ModeBlockingStrict
	features := genericoptions.NewFeatureOptions()
	features.EnableProfiling = false
	return &Options{
		WriterLease:                 quorum.DefaultLength,
		Connections:                 4,
		MaxRequestsInFlight:         1200,
		MaxMutatingRequestsInFlight: 600,
		MaxStreamsPerUser:           1000,
		MemoryBudget:                resource.QuantityValue{Quantity: resource.MustParse("512Mi")},
		RequestTimeout:              time.Minute,
		TokenCacheTTL:               10 * time.Second,
		Console:                     true,
		Tokens:                      tokens.NewOptions(),
		SecureServing:               serving.WithLoopback(),
		Audit:                       audit,
		Features:                    features,
	}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.HubKubeconfig, "hub-kubeconfig", o.HubKubeconfig, "kubeconfig with the gateway's own identity at the hub")
	flags.StringVar(&o.HubProxyCert, "hub-proxy-client-cert-file", o.HubProxyCert, "front-proxy certificate with which users' requests are forwarded to the hub")
	flags.StringVar(&o.HubProxyKey, "hub-proxy-client-key-file", o.HubProxyKey, "key of that certificate")
	flags.StringVar(&o.CellsFile, "cells-file", o.CellsFile, "file that lists the cells (default: the hub's CellTopology and Cells)")
	flags.StringVar(&o.StateDir, "state-dir", o.StateDir, "directory for the files that a start without the hub needs; contains credentials")
	flags.StringSliceVar(&o.Expose, "expose", o.Expose, "show only these resources in discovery, as resource.group (default: all)")
	flags.DurationVar(&o.WriterLease, "writer-lease", o.WriterLease, "how long the gateway may write after a majority of the cells and the hub has confirmed its topology; a failover waits as long")
	flags.IntVar(&o.Connections, "upstream-connections", o.Connections, "connections to each control plane")
	flags.IntVar(&o.MaxRequestsInFlight, "max-requests-inflight", o.MaxRequestsInFlight, "together with --max-mutating-requests-inflight: number of concurrent requests, divided by the hub's FlowSchemas")
	flags.IntVar(&o.MaxMutatingRequestsInFlight, "max-mutating-requests-inflight", o.MaxMutatingRequestsInFlight, "added to --max-requests-inflight")
	flags.IntVar(&o.MaxStreamsPerUser, "max-streams-per-user", o.MaxStreamsPerUser, "watches and other long-running requests that a user, or the service accounts of a namespace, may have at a time; 0 for no limit")
	flags.Var(&o.MemoryBudget, "memory-budget", "memory for requests and answers that have to be held; a user gets a quarter, and what exceeds it waits; 0 for no limit")
	flags.DurationVar(&o.RequestTimeout, "request-timeout", o.RequestTimeout, "maximum duration of a request that is not long-running")
	flags.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", o.ShutdownDelay, "how long to serve after SIGTERM while reporting not ready")
	flags.Float64Var(&o.GoawayChance, "goaway-chance", o.GoawayChance, "probability that a request makes its client reconnect, up to 0.02")
	flags.DurationVar(&o.TokenCacheTTL, "authentication-token-webhook-cache-ttl", o.TokenCacheTTL, "how long the result for a token is cached")
	flags.BoolVar(&o.Console, "console", o.Console, "serve the web console at /console; whoever reaches the gateway may load its files, and needs an identity for all else")
	o.Tokens.AddFlags(flags)
	o.Views.addFlags(flags)
	o.ClientCA.AddFlags(flags)
	o.SecureServing.AddFlags(flags)
	o.Audit.AddFlags(flags)
	o.Features.AddFlags(flags)
}

// completedOptions can be validated.
type completedOptions struct {
	*Options
	hub      *rest.Config
	endpoint fleet.Endpoint
	source   topology.Source // nil for the hub
	expose   map[schema.GroupResource]bool
	views    completedViews
}

// CompletedOptions are options with all defaults set.
type CompletedOptions struct{ *completedOptions }

// Complete reads files and sets defaults.
func (o *Options) Complete() (CompletedOptions, error) {
	c := &completedOptions{Options: o}
	completed := CompletedOptions{c}
	if o.HubKubeconfig == "" {
		return completed, errors.New("--hub-kubeconfig must be set")
	}
	hub, err := fleet.ReadKubeconfig(o.HubKubeconfig, "")
	if err != nil {
		return completed, fmt.Errorf("reading --hub-kubeconfig: %w", err)
	}
	c.hub = hub.Config()
	c.hub.QPS = -1 // a handful of informers, and reviews that are cached
	if c.endpoint, err = o.hubEndpoint(hub.Endpoint()); err != nil {
		return completed, err
	}
	if c.views, err = o.Views.complete(hub.Endpoint(), o.Connections); err != nil {
		return completed, err
	}
	c.source = o.Source
	if o.CellsFile != "" {
		if c.source, err = topology.FromFile(o.CellsFile); err != nil {
			return completed, err
		}
	}
	if len(o.Expose) > 0 {
		c.expose = map[schema.GroupResource]bool{}
		for _, name := range o.Expose {
			c.expose[schema.ParseGroupResource(name)] = true
		}
	}
	if err := o.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return completed, fmt.Errorf("creating a serving certificate: %w", err)
	}
	o.trackCertificates()
	return completed, nil
}

func (o *Options) trackCertificates() {
	expiry.Track(
		expiry.File("serving", o.SecureServing.ServerCert.CertKey.CertFile),
		expiry.Authorities("client-ca", o.ClientCA.ClientCA),
		expiry.Kubeconfig("hub-client", o.HubKubeconfig, ""),
		expiry.File("hub-proxy-client", o.HubProxyCert),
		expiry.File("cluster-gateway-client", o.Views.Cert),
		expiry.Authorities("cluster-gateway-ca", o.Views.CA),
		expiry.Authorities("oidc-ca", o.Tokens.OIDC.CAFile),
		expiry.Kubeconfig("token-webhook-client", o.Tokens.WebhookConfigFile, ""),
	)
}

func (o *Options) hubEndpoint(endpoint fleet.Endpoint) (fleet.Endpoint, error) {
	if o.HubProxyCert == "" || o.HubProxyKey == "" {
		return fleet.Endpoint{}, errors.New("--hub-proxy-client-cert-file and --hub-proxy-client-key-file must be set")
	}
	endpoint.CertFile, endpoint.KeyFile = o.HubProxyCert, o.HubProxyKey
	endpoint, err := endpoint.LoadFiles()
	if err != nil {
		return fleet.Endpoint{}, fmt.Errorf("reading the certificates for the hub: %w", err)
	}
	return endpoint, nil
}

// minBudget is the smallest memory budget: the share of a user has to be enough for some large requests.
const minBudget = 32 << 20

// Validate returns everything that is invalid.
func (o CompletedOptions) Validate() error {
	var errs []error
	errs = append(errs, o.SecureServing.Validate()...)
	errs = append(errs, o.Audit.Validate()...)
	errs = append(errs, o.Features.Validate()...)
	errs = append(errs, o.Tokens.Validate()...)
	if o.ClientCA.ClientCA == "" && o.ClientCA.CAContentProvider == nil {
		errs = append(errs, errors.New("--client-ca-file must be set: without it no client certificate is accepted"))
	}
	if o.MaxRequestsInFlight <= 0 || o.MaxMutatingRequestsInFlight <= 0 {
		errs = append(errs, errors.New("--max-requests-inflight and --max-mutating-requests-inflight must be positive"))
	}
	if o.MaxStreamsPerUser < 0 {
		errs = append(errs, errors.New("--max-streams-per-user must not be negative; 0 is no limit"))
	}
	if budget := o.MemoryBudget.Value(); budget != 0 && budget < minBudget {
		errs = append(errs, fmt.Errorf("--memory-budget must be at least %dMi, or 0 for no limit", minBudget>>20))
	}
	if o.GoawayChance < 0 || o.GoawayChance > 0.02 {
		errs = append(errs, errors.New("--goaway-chance must be between 0 and 0.02"))
	}
	if o.RequestTimeout < time.Second {
		errs = append(errs, errors.New("--request-timeout must be at least a second"))
	}
	if o.WriterLease < time.Second || o.WriterLease > quorum.MaxLength {
		errs = append(errs, fmt.Errorf("--writer-lease must be between 1s and %s", quorum.MaxLength))
	}
	if err := strictPolicy(o.Audit); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
