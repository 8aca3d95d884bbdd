package clustergateway

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustergateway/ingest"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
)

// Options are the flags of a cluster-gateway.
type Options struct {
	// HubKubeconfig leads to the hub, whose Clusters are followed.
	HubKubeconfig string
	// TemplatesKubeconfig leads to the gateway's surface of templates; without it there are none.
	TemplatesKubeconfig string
	// Replica is what tells this replica from others; the default is the name of the host.
	Replica string
	// Clusters selects the members by the labels of their Clusters.
	Clusters string
	// Kinds are the resources that are cached, as resource.group.
	Kinds []string
	// StaleAfter is how long the objects of a member that cannot be followed are shown.
	StaleAfter time.Duration
	// RemovedAfter is how long those of a removed Cluster are.
	RemovedAfter time.Duration
	// ProbeInterval and ProbeTimeout are the rhythm in which members are asked for signs of life.
	ProbeInterval, ProbeTimeout time.Duration
	// KeepManagedFields and KeepLastApplied keep what is dropped from objects otherwise.
	KeepManagedFields, KeepLastApplied bool
	// History is how many events of each kind watches can be resumed from.
	History int
	// ClientNames are the common names of the certificates of gateways.
	ClientNames []string
	// MetricsAddress is where metrics are served, without authentication; empty means nowhere.
	MetricsAddress string

	ClientCA      genericoptions.ClientCertAuthenticationOptions
	SecureServing *genericoptions.SecureServingOptions
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	serving := genericoptions.NewSecureServingOptions()
	serving.BindPort = 6444
	serving.HTTP2MaxStreamsPerConnection = 1000
	return &Options{
		Kinds:         views.Names(views.Default()),
		StaleAfter:    5 * time.Minute,
		RemovedAfter:  30 * time.Second,
		ProbeInterval: 5 * time.Second,
		ProbeTimeout:  3 * time.Second,
		History:       clustercache.DefaultHistory,
		ClientNames:   []string{names.GatewayUser},
		SecureServing: serving,
	}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.HubKubeconfig, "hub-kubeconfig", o.HubKubeconfig, "kubeconfig of the hub, whose Clusters are followed")
	flags.StringVar(&o.TemplatesKubeconfig, "templates-kubeconfig", o.TemplatesKubeconfig, "kubeconfig of the gateway's /federation, whose pods and events are shown until members have them")
	flags.StringVar(&o.Replica, "replica", o.Replica, "what tells this replica from others (default: the name of the host)")
	flags.StringVar(&o.Clusters, "clusters", o.Clusters, "follow only the members whose Clusters have such labels (default: all)")
	flags.StringSliceVar(&o.Kinds, "kinds", o.Kinds, "what to follow of the members, as resource.group")
	flags.DurationVar(&o.StaleAfter, "stale-after", o.StaleAfter, "how long the objects of a member that cannot be followed are shown")
	flags.DurationVar(&o.RemovedAfter, "removed-after", o.RemovedAfter, "how long the objects of a Cluster that was deleted are shown, lest it is registered again")
	flags.DurationVar(&o.ProbeInterval, "probe-interval", o.ProbeInterval, "how often a member is asked for a sign of life")
	flags.DurationVar(&o.ProbeTimeout, "probe-timeout", o.ProbeTimeout, "how long a member may take to give one")
	flags.BoolVar(&o.KeepManagedFields, "keep-managed-fields", o.KeepManagedFields, "keep metadata.managedFields, which cost much memory")
	flags.BoolVar(&o.KeepLastApplied, "keep-last-applied", o.KeepLastApplied, "keep the annotation of kubectl apply, which costs much memory")
	flags.IntVar(&o.History, "history", o.History, "how many events of each kind watches can be resumed from")
	flags.StringSliceVar(&o.ClientNames, "client-names", o.ClientNames, "common names of the certificates that may read everything: those of gateways")
	flags.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress, "loopback address to serve /metrics at, without authentication; empty for none")
	o.ClientCA.AddFlags(flags)
	o.SecureServing.AddFlags(flags)
}

// completedOptions can be validated.
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
	var err error
	if c.hub, err = clientcmd.BuildConfigFromFlags("", o.HubKubeconfig); err != nil {
		return completed, fmt.Errorf("reading --hub-kubeconfig: %w", err)
	}
	if o.TemplatesKubeconfig != "" {
		if c.templates, err = clientcmd.BuildConfigFromFlags("", o.TemplatesKubeconfig); err != nil {
			return completed, fmt.Errorf("reading --templates-kubeconfig: %w", err)
		}
	}
	if c.clusters, err = labels.Parse(o.Clusters); err != nil {
		return completed, fmt.Errorf("reading --clusters: %w", err)
	}
	if c.views, err = views.Parse(o.Kinds); err != nil {
		return completed, fmt.Errorf("reading --kinds: %w", err)
	}
	if o.Replica == "" {
		if o.Replica, err = os.Hostname(); err != nil {
			return completed, fmt.Errorf("finding the name of this machine: %w", err)
		}
	}
	if err := o.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return completed, fmt.Errorf("making a serving certificate: %w", err)
	}
	return completed, nil
}

// Validate says what is wrong.
func (o CompletedOptions) Validate() error {
	errs := o.SecureServing.Validate()
	if o.ClientCA.ClientCA == "" && o.ClientCA.CAContentProvider == nil {
		errs = append(errs, errors.New("--client-ca-file must be given: it says which gateways may read"))
	}
	if len(o.ClientNames) == 0 {
		errs = append(errs, errors.New("--client-names must name at least one gateway"))
	}
	if len(o.views) == 0 {
		errs = append(errs, errors.New("--kinds must name at least one resource"))
	}
	for flag, value := range map[string]time.Duration{"--stale-after": o.StaleAfter, "--removed-after": o.RemovedAfter, "--probe-interval": o.ProbeInterval, "--probe-timeout": o.ProbeTimeout} {
		if value <= 0 {
			errs = append(errs, fmt.Errorf("%s must be positive", flag))
		}
	}
	if o.History < 1 {
		errs = append(errs, errors.New("--history must be positive"))
	}
	return errors.Join(errs...)
}

func (o CompletedOptions) times() ingest.Times {
	return ingest.Times{StaleAfter: o.StaleAfter, RemovedAfter: o.RemovedAfter, Probe: o.ProbeInterval, ProbeTimeout: o.ProbeTimeout}
}
