package manager

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/internal/admission"
	"github.com/cellplane/cellplane/internal/election"
	"github.com/cellplane/cellplane/internal/expiry"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/hub/clusters"
	"github.com/cellplane/cellplane/internal/scrape"
)

// Options are the command-line options of a hub manager.
type Options struct {
	// Kubeconfig and Context select the hub. An empty file means the default loading rules.
	Kubeconfig, Context string
	// ClusterAPIKubeconfig and ClusterAPIContext select a management cluster of Cluster API; an empty file means none.
	ClusterAPIKubeconfig, ClusterAPIContext string
	// BindAddress is where health, metrics and the replication status are served; empty means nowhere.
	BindAddress string
	// HealthAddress is where only /healthz and /readyz are served; empty means nowhere.
	HealthAddress string
	// Scrape is where metrics are served with TLS and authentication.
	Scrape scrape.Options
	// CopyWorkers is how many objects are written to one cell concurrently.
	CopyWorkers int
	// StateDir is where snapshots of returning cells are kept.
	StateDir string
	// AutoFailoverAfter is how long a cell must be unreachable to be failed over; 0 means never.
	AutoFailoverAfter time.Duration
	// StoreUpkeep has the etcds of cells be defragmented, and freed when they have used up their quota.
	StoreUpkeep bool

	Election  election.Timing
	Admission admission.Options
	Clusters  clusters.Options
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		BindAddress: "127.0.0.1:10361",
		CopyWorkers: 16,
		StateDir:    "/var/lib/cellplane/hub-manager",
		StoreUpkeep: true,
		Election:    election.Timing{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second},
	}
}

// AddFlags adds a flag for each option.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file of the hub (default: $KUBECONFIG, or the service account of this pod)")
	flags.StringVar(&o.Context, "context", o.Context, "context of the hub in that kubeconfig (default: its current one)")
	flags.StringVar(&o.ClusterAPIKubeconfig, "cluster-api-kubeconfig", o.ClusterAPIKubeconfig, "kubeconfig file of a Cluster API management cluster; its clusters join and leave the federation automatically")
	flags.StringVar(&o.ClusterAPIContext, "cluster-api-context", o.ClusterAPIContext, "context of that kubeconfig (default: its current one)")
	flags.StringVar(&o.BindAddress, "bind-address", o.BindAddress, "address to serve /healthz, /readyz, /metrics and /replication on, without authentication; empty for none")
	flags.StringVar(&o.HealthAddress, "health-address", o.HealthAddress, "address for /healthz and /readyz alone, for probes of a kubelet, like :8081 (default: none)")
	o.Scrape.AddFlags(flags)
	flags.IntVar(&o.CopyWorkers, "copy-workers", o.CopyWorkers, "how many objects are written to one cell concurrently")
	flags.StringVar(&o.StateDir, "state-dir", o.StateDir, "directory for snapshots of failed cells that return, and for objects that had not reached their backup")
	flags.DurationVar(&o.AutoFailoverAfter, "auto-failover-after", o.AutoFailoverAfter, "fail over a cell that has not answered for this long while all others do; 0 leaves that to the operator")
	flags.BoolVar(&o.StoreUpkeep, "store-upkeep", o.StoreUpkeep, "defragment the etcds of cells, one member at a time, and free those that have used up their quota; false leaves that to others")
	flags.DurationVar(&o.Election.LeaseDuration, "leader-elect-lease-duration", o.Election.LeaseDuration, "time after which another replica takes over from a leader that does not renew its lease")
	flags.DurationVar(&o.Election.RenewDeadline, "leader-elect-renew-deadline", o.Election.RenewDeadline, "time after which a leader that cannot renew its lease stops")
	flags.DurationVar(&o.Election.RetryPeriod, "leader-elect-retry-period", o.Election.RetryPeriod, "time between attempts to acquire or renew the lease")
	flags.BoolVar(&o.Admission.AllowNoExecuteTaintPolicy, "allow-no-execute-taint-policy", o.Admission.AllowNoExecuteTaintPolicy, "let ClusterTaintPolicies add NoExecute taints, which evict workloads")

	status := &o.Clusters.Status
	flags.DurationVar(&status.Interval, "cluster-status-update-frequency", 10*time.Second, "how often the status of a cluster is collected")
	flags.DurationVar(&status.SuccessThreshold, "cluster-success-threshold", 30*time.Second, "how long a cluster must be healthy before it is ready again")
	flags.DurationVar(&status.FailureThreshold, "cluster-failure-threshold", 30*time.Second, "how long a cluster must be unhealthy before it is no longer ready")
	flags.DurationVar(&status.MonitorInterval, "cluster-monitor-period", 5*time.Second, "how often the lease of a cluster with an agent is checked")
	flags.DurationVar(&status.MonitorGracePeriod, "cluster-monitor-grace-period", 40*time.Second, "how old the lease of a cluster with an agent may become")
	flags.DurationVar(&status.StartupGracePeriod, "cluster-startup-grace-period", 60*time.Second, "how long the agent of a new cluster may take to start")
	flags.BoolFunc("enable-cluster-resource-modeling", "watch the nodes and pods of clusters and publish their capacity and use, also by grade of node (default true)", func(text string) error {
		enabled, err := strconv.ParseBool(text)
		status.WithoutResources = !enabled
		return err
	})
}

// completed are options with all defaults set.
type completed struct {
	Options
	hub      *rest.Config
	identity string
}

// Completed are options that can be validated. Only Complete returns them.
type Completed struct{ *completed }

// Complete loads the kubeconfigs and sets defaults.
func (o *Options) Complete() (Completed, error) {
	hub, err := o.hubConfig()
	if err != nil {
		return Completed{}, fmt.Errorf("loading the kubeconfig of the hub: %w; name it with --kubeconfig", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return Completed{}, fmt.Errorf("reading the host name: %w", err)
	}
	c := &completed{Options: *o, hub: hub, identity: host + "_" + uuid.NewString()}
	if o.ClusterAPIKubeconfig != "" {
		kubeconfig, err := fleet.ReadKubeconfig(o.ClusterAPIKubeconfig, o.ClusterAPIContext)
		if err != nil {
			return Completed{}, fmt.Errorf("reading --cluster-api-kubeconfig: %w", err)
		}
		c.Clusters.ClusterAPI = kubeconfig.Config()
	}
	expiry.Track(
		expiry.Kubeconfig("hub-client", o.Kubeconfig, o.Context),
		expiry.Kubeconfig("cluster-api-client", o.ClusterAPIKubeconfig, o.ClusterAPIContext),
	)
	defaults := NewOptions()
	c.CopyWorkers = cmp.Or(c.CopyWorkers, defaults.CopyWorkers)
	c.StateDir = cmp.Or(c.StateDir, defaults.StateDir)
	if c.Election == (election.Timing{}) {
		c.Election = defaults.Election
	}
	return Completed{c}, nil
}

// hubConfig returns the configuration of the hub. It follows the file of --kubeconfig. Otherwise it is that of $KUBECONFIG or of the service
// account of this pod, whose token client-go re-reads.
func (o *Options) hubConfig() (*rest.Config, error) {
	if o.Kubeconfig != "" {
		kubeconfig, err := fleet.ReadKubeconfig(o.Kubeconfig, o.Context)
		if err != nil {
			return nil, err
		}
		return kubeconfig.Config(), nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
}

// minFailoverAfter is the shortest time after which a cell may be failed over automatically.
const minFailoverAfter = 30 * time.Second

// Validate returns one sentence for each invalid option.
func (c Completed) Validate() error {
	var errs []error
	if c.CopyWorkers < 1 || c.CopyWorkers > 1024 {
		errs = append(errs, fmt.Errorf("--copy-workers must be between 1 and 1024, not %d", c.CopyWorkers))
	}
	if c.AutoFailoverAfter != 0 && c.AutoFailoverAfter < minFailoverAfter {
		errs = append(errs, fmt.Errorf("--auto-failover-after must be at least %s, or 0 for never, not %s: a cell that restarts does not answer either", minFailoverAfter, c.AutoFailoverAfter))
	}
	if c.BindAddress != "" {
		if _, _, err := net.SplitHostPort(c.BindAddress); err != nil {
			errs = append(errs, fmt.Errorf("--bind-address must be host:port: %w", err))
		}
	}
	if err := c.Scrape.Validate(); err != nil {
		errs = append(errs, err)
	}
	if e := c.Election; e.RetryPeriod <= 0 || e.RenewDeadline <= e.RetryPeriod+e.RetryPeriod/5 || e.LeaseDuration <= e.RenewDeadline {
		errs = append(errs, errors.New("the leader election needs --leader-elect-lease-duration > --leader-elect-renew-deadline > 1.2 × --leader-elect-retry-period > 0"))
	}
	return errors.Join(errs...)
}

// Config returns the configuration to run. The options must be valid.
func (c Completed) Config() *Config {
	return &Config{
		Hub: c.hub, Identity: c.identity, BindAddress: c.BindAddress, HealthAddress: c.HealthAddress, Scrape: c.Scrape, CopyWorkers: c.CopyWorkers, StateDir: c.StateDir, AutoFailoverAfter: c.AutoFailoverAfter,
		StoreUpkeep: c.StoreUpkeep, Election: c.Election, Admission: c.Admission, Clusters: c.Clusters,
	}
}
