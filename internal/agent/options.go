package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/agent/credentials"
	"github.com/cellplane/cellplane/internal/expiry"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/hub/clusterstatus"
)

// Options are the flags of an agent.
type Options struct {
	Cluster string
	// Kubeconfig and Context are for the gateway, MemberKubeconfig and MemberContext for the member.
	Kubeconfig, Context             string
	MemberKubeconfig, MemberContext string

	LeaderElect    bool
	Workers        int
	MetricsAddress string
	HealthAddress  string
	Status         clusterstatus.Options
	LeaseDuration  time.Duration
	ReportInterval time.Duration
	MetricsOnly    bool
	Tunnel         bool
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{Workers: defaultWorkers, ReportInterval: defaultReports, Tunnel: true}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Cluster, "cluster-name", o.Cluster, "name of the cluster in the federation (default: as it is registered)")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig for the gateway, with the identity of the agent (default: that of the registration, in the Secret "+names.AgentSecret+" of the cluster; it is renewed)")
	flags.StringVar(&o.Context, "context", o.Context, "context of the kubeconfig to use")
	flags.StringVar(&o.MemberKubeconfig, "member-kubeconfig", o.MemberKubeconfig, "kubeconfig for the cluster (default: the service account of the pod)")
	flags.StringVar(&o.MemberContext, "member-context", o.MemberContext, "context of the member-kubeconfig to use")
	flags.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "elect a leader among the agents of this cluster, in the cluster; only the leader writes")
	flags.IntVar(&o.Workers, "workers", o.Workers, "most concurrent requests to the cluster")
	flags.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress, "loopback address for /metrics, /healthz and /readyz, like 127.0.0.1:8080 (default: none)")
	flags.StringVar(&o.HealthAddress, "health-address", o.HealthAddress, "address for /healthz and /readyz alone, for probes of a kubelet, like :8081 (default: none)")
	flags.DurationVar(&o.Status.Interval, "cluster-status-update-frequency", 10*time.Second, "how often the status of the cluster is collected")
	flags.DurationVar(&o.LeaseDuration, "cluster-lease-duration", defaultLeaseDuration, "how long the Lease of the cluster is valid; it is renewed four times as often")
	flags.DurationVar(&o.ReportInterval, "workload-metrics-interval", o.ReportInterval, "how often metrics of workloads are reported; 0 for never")
	flags.BoolVar(&o.MetricsOnly, "metrics-only", o.MetricsOnly, "only report metrics of workloads, for a cluster in push mode")
	flags.BoolVar(&o.Tunnel, "tunnel", o.Tunnel, "open tunnels to the federation, through which it reaches the API server of the cluster in the name of its users; not with --metrics-only")
	flags.DurationVar(&o.Status.SuccessThreshold, "cluster-success-threshold", 30*time.Second, "how long the cluster must be healthy before it is ready again")
	flags.DurationVar(&o.Status.FailureThreshold, "cluster-failure-threshold", 30*time.Second, "how long the cluster must be unhealthy before it is no longer ready")
}

// Complete reads the kubeconfigs, or the credentials that the registration has left in the cluster, and returns the configuration.
func (o *Options) Complete(ctx context.Context) (*Config, error) {
	member, err := o.member()
	if err != nil {
		return nil, err
	}
	config := &Config{
		Cluster: o.Cluster, Member: member, LeaderElect: o.LeaderElect, Workers: o.Workers,
		Status: o.Status, LeaseDuration: o.LeaseDuration, ReportInterval: o.ReportInterval, MetricsOnly: o.MetricsOnly, Tunnel: o.Tunnel && !o.MetricsOnly, MetricsAddress: o.MetricsAddress, HealthAddress: o.HealthAddress,
	}
	expiry.Track(expiry.Kubeconfig("member-client", o.MemberKubeconfig, o.MemberContext))
	if o.Kubeconfig == "" {
		return config, config.openCredentials(ctx)
	}
	if o.Cluster == "" {
		return nil, errors.New("--kubeconfig needs --cluster-name")
	}
	gateway, err := fleet.ReadKubeconfig(o.Kubeconfig, o.Context)
	if err != nil {
		return nil, err
	}
	config.Federation = gateway.Config()
	expiry.Track(expiry.Kubeconfig("gateway-client", o.Kubeconfig, o.Context))
	return config, nil
}

// openCredentials uses the credentials of the cluster's registration.
func (c *Config) openCredentials(ctx context.Context) error {
	member, err := kubernetes.NewForConfig(c.Member)
	if err != nil {
		return err
	}
	secret := credentials.Secret{Member: member}
	if c.Credentials, err = credentials.Open(ctx, secret); err != nil {
		return err
	}
	expiry.Track(expiry.Certificate{Purpose: "gateway-client", File: "Secret " + secret.String(), Expires: func() (time.Time, error) { return c.Credentials.Expires(), nil }})
	registered := c.Credentials.Cluster()
	if c.Cluster != "" && c.Cluster != registered {
		return fmt.Errorf("this cluster is registered as %s, not as %s", registered, c.Cluster)
	}
	c.Cluster, c.Federation = registered, c.Credentials.Config()
	return nil
}

func (o *Options) member() (*rest.Config, error) {
	if o.MemberKubeconfig != "" {
		kubeconfig, err := fleet.ReadKubeconfig(o.MemberKubeconfig, o.MemberContext)
		if err != nil {
			return nil, err
		}
		return kubeconfig.Config(), nil
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("this is not a pod of the cluster; name a kubeconfig for the cluster with --member-kubeconfig")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the service account of the pod: %w", err)
	}
	return config, nil
}
