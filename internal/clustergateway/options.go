package clustergateway

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustergateway/ingest"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
	"github.com/cellplane/cellplane/internal/expiry"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/scrape"
)

// Options are the flags of a cluster-gateway.
type Options struct {
	// HubKubeconfig is the kubeconfig of the hub, which has the Clusters.
	HubKubeconfig string
	// TemplatesKubeconfig is the kubeconfig of the gateway's /federation; without it no templates are shown.
	TemplatesKubeconfig string
	// Replica is the unique name of this replica; the default is the host name.
	Replica string
	// Clusters is a selector on the labels of Clusters: only matching members are shown.
	Clusters string
	// Kinds are the resources that are cached, as resource.group.
	Kinds []string
	// StaleAfter is how long the objects of a member that cannot be watched stay visible.
	StaleAfter time.Duration
	// RemovedAfter is how long the objects of a deleted Cluster stay visible.
	RemovedAfter time.Duration
	// MetricsStaleAfter is how long metrics of workloads are kept that the agent of their cluster does not renew.
	MetricsStaleAfter time.Duration
	// ProbeInterval and ProbeTimeout are the interval and timeout of health probes.
	ProbeInterval, ProbeTimeout time.Duration
	// KeepManagedFields and KeepLastApplied keep what is otherwise dropped from objects.
	KeepManagedFields, KeepLastApplied bool
	// History is the number of events per kind from which watches can resume.
	History int
	// MaxStreamsPerUser bounds the watches of one user over all gateways; 0 means no limit.
	MaxStreamsPerUser int
	// MemoryBudget bounds the memory in which answers are held; 0 means no limit.
	MemoryBudget resource.QuantityValue
	// ClientNames are the common names of the certificates of gateways.
	ClientNames []string
	// MetricsAddress is the address of metrics, served without authentication; empty means none.
	MetricsAddress string
	// Scrape is where metrics are served with TLS and authentication.
	Scrape scrape.Options

	ClientCA      genericoptions.ClientCertAuthenticationOptions
	SecureServing *genericoptions.SecureServingOptions
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	serving := genericoptions.NewSecureServingOptions()
	serving.BindPort = 6444
	serving.HTTP2MaxStreamsPerConnection = 1000
	return &Options{
		Kinds:             views.Names(views.Default()),
		StaleAfter:        5 * time.Minute,
		RemovedAfter:      30 * time.Second,
		MetricsStaleAfter: time.Minute,
		ProbeInterval:     5 * time.Second,
		ProbeTimeout:      3 * time.Second,
		History:           clustercache.DefaultHistory,
		MaxStreamsPerUser: 3000,
		MemoryBudget:      resource.QuantityValue{Quantity: resource.MustParse("512Mi")},
		ClientNames:       []string{names.GatewayUser},
		SecureServing:     serving,
	}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.HubKubeconfig, "hub-kubeconfig", o.HubKubeconfig, "kubeconfig of the hub")
	flags.StringVar(&o.TemplatesKubeconfig, "templates-kubeconfig", o.TemplatesKubeconfig, "kubeconfig of the gateway's /federation; its pods and events are shown until members have them")
	flags.StringVar(&o.Replica, "replica", o.Replica, "unique name of this replica (default: the host name)")
	flags.StringVar(&o.Clusters, "clusters", o.Clusters, "label selector: show only members whose Clusters match (default: all)")
	flags.StringSliceVar(&o.Kinds, "kinds", o.Kinds, "resources of the members to cache, as resource.group")
	flags.DurationVar(&o.StaleAfter, "stale-after", o.StaleAfter, "how long the objects of a member that cannot be watched stay visible")
	flags.DurationVar(&o.RemovedAfter, "removed-after", o.RemovedAfter, "how long the objects of a deleted Cluster stay visible, in case it is registered again")
	flags.DurationVar(&o.MetricsStaleAfter, "metrics-stale-after", o.MetricsStaleAfter, "how long metrics of workloads are kept that the agent of their cluster does not renew")
	flags.DurationVar(&o.ProbeInterval, "probe-interval", o.ProbeInterval, "interval of health probes of members")
	flags.DurationVar(&o.ProbeTimeout, "probe-timeout", o.ProbeTimeout, "timeout of a health probe")
	flags.BoolVar(&o.KeepManagedFields, "keep-managed-fields", o.KeepManagedFields, "keep metadata.managedFields, at the cost of much memory")
	flags.BoolVar(&o.KeepLastApplied, "keep-last-applied", o.KeepLastApplied, "keep the last-applied annotation of kubectl apply, at the cost of much memory")
	flags.IntVar(&o.History, "history", o.History, "number of events per kind from which watches can resume")
	flags.IntVar(&o.MaxStreamsPerUser, "max-streams-per-user", o.MaxStreamsPerUser, "watches that a user, or the service accounts of a namespace, may have at a time over all gateways; 0 for no limit")
	flags.Var(&o.MemoryBudget, "memory-budget", "memory for answers that have to be held; a user gets a quarter, and what exceeds it waits; 0 for no limit")
	flags.StringSliceVar(&o.ClientNames, "client-names", o.ClientNames, "common names of client certificates of gateways, which may read everything")
	flags.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress, "loopback address to serve /metrics at, without authentication; empty for none")
	o.Scrape.AddFlags(flags)
	o.ClientCA.AddFlags(flags)
	o.SecureServing.AddFlags(flags)
}

// completedOptions are options with defaults, ready for validation.
type completedOptions struct {
	*Options
	hub       *rest.Config
	templates *rest.Config // nil for none
	clusters  labels.Selector
	views     []views.View
}

// CompletedOptions are options with all defaults filled in.
type CompletedOptions struct{ *completedOptions }

// Complete reads files and fills in defaults.
func (o *Options) Complete() (CompletedOptions, error) {
	c := &completedOptions{Options: o}
	completed := CompletedOptions{c}
	if o.HubKubeconfig == "" {
		return completed, errors.New("--hub-kubeconfig must be given")
	}
	hub, err := fleet.ReadKubeconfig(o.HubKubeconfig, "")
	if err != nil {
		return completed, fmt.Errorf("reading --hub-kubeconfig: %w", err)
	}
	c.hub = hub.Config()
	if o.TemplatesKubeconfig != "" {
		templates, err := fleet.ReadKubeconfig(o.TemplatesKubeconfig, "")
		if err != nil {
			return completed, fmt.Errorf("reading --templates-kubeconfig: %w", err)
		}
		c.templates = templates.Config()
	}
	if c.clusters, err = labels.Parse(o.Clusters); err != nil {
		return completed, fmt.Errorf("reading --clusters: %w", err)
	}
	if c.views, err = views.Parse(o.Kinds); err != nil {
		return completed, fmt.Errorf("reading --kinds: %w", err)
	}
	if o.Replica == "" {
		if o.Replica, err = os.Hostname(); err != nil {
			return completed, fmt.Errorf("finding the host name: %w", err)
		}
	}
	if err := o.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return completed, fmt.Errorf("creating a serving certificate: %w", err)
	}
	expiry.Track(
		expiry.File("serving", o.SecureServing.ServerCert.CertKey.CertFile),
		expiry.Authorities("client-ca", o.ClientCA.ClientCA),
		expiry.Kubeconfig("hub-client", o.HubKubeconfig, ""),
		expiry.Kubeconfig("templates-client", o.TemplatesKubeconfig, ""),
	)
	return completed, nil
}

// Validate returns all that is invalid.
func (o CompletedOptions) Validate() error {
	errs := o.SecureServing.Validate()
	if err := o.Scrape.Validate(); err != nil {
		errs = append(errs, err)
	}
	if o.ClientCA.ClientCA == "" && o.ClientCA.CAContentProvider == nil {
		errs = append(errs, errors.New("--client-ca-file must be given: it authenticates gateways"))
	}
	if len(o.ClientNames) == 0 {
		errs = append(errs, errors.New("--client-names must name at least one gateway"))
	}
	if len(o.views) == 0 {
		errs = append(errs, errors.New("--kinds must name at least one resource"))
	}
	for flag, value := range map[string]time.Duration{"--stale-after": o.StaleAfter, "--removed-after": o.RemovedAfter, "--metrics-stale-after": o.MetricsStaleAfter, "--probe-interval": o.ProbeInterval, "--probe-timeout": o.ProbeTimeout} {
		if value <= 0 {
			errs = append(errs, fmt.Errorf("%s must be positive", flag))
		}
	}
	if o.History < 1 {
		errs = append(errs, errors.New("--history must be positive"))
	}
	if o.MaxStreamsPerUser < 0 {
		errs = append(errs, errors.New("--max-streams-per-user must not be negative; 0 is no limit"))
	}
	if budget := o.MemoryBudget.Value(); budget != 0 && budget < minBudget {
		errs = append(errs, fmt.Errorf("--memory-budget must be at least %dMi, or 0 for no limit", minBudget>>20))
	}
	return errors.Join(errs...)
}

// minBudget is the smallest budget: a large object, several times in memory, fits into a share.
const minBudget = 32 << 20

func (o CompletedOptions) times() ingest.Times {
	return ingest.Times{StaleAfter: o.StaleAfter, RemovedAfter: o.RemovedAfter, Probe: o.ProbeInterval, ProbeTimeout: o.ProbeTimeout}
}
