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
	"github.com/cellplane/cellplane/internal/hub/clusters"
)

// Options are what a user says about a hub manager.
type Options struct {
	// Kubeconfig and Context lead to the hub. Without a file the usual places are looked at.
	Kubeconfig, Context string
	// ClusterAPIKubeconfig and ClusterAPIContext lead to a management cluster of Cluster API; without a file there is none.
	ClusterAPIKubeconfig, ClusterAPIContext string
	// BindAddress is where health, metrics and the state of replication are served; empty means nowhere.
	BindAddress string
	// CopyWorkers is how many objects are written to one cell at once.
	CopyWorkers int
	// StateDir is where snapshots of cells that return are kept.
	StateDir string
	// AutoFailoverAfter is how long a cell must be silent to be given up; 0 means never.
	AutoFailoverAfter time.Duration

	Election  Election
	Admission admission.Options
	Clusters  clusters.Options
}

// Election are the times that matter for who works.
type Election struct {
	// LeaseDuration is how long the others wait after the last sign of life, RenewDeadline after which time without a
	// renewal the one that works gives up, and RetryPeriod the time between attempts.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		BindAddress: "127.0.0.1:10361",
		CopyWorkers: 16,
		StateDir:    "/var/lib/cellplane/hub-manager",
		Election:    Election{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second},
	}
}

// AddFlags adds a flag for each option.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file that leads to the hub (default: $KUBECONFIG, or the service account of this pod)")
	flags.StringVar(&o.Context, "context", o.Context, "context of the kubeconfig that is the hub (default: its current one)")
	flags.StringVar(&o.ClusterAPIKubeconfig, "cluster-api-kubeconfig", o.ClusterAPIKubeconfig, "kubeconfig file that leads to a management cluster of Cluster API, whose clusters join and leave the federation by themselves")
	flags.StringVar(&o.ClusterAPIContext, "cluster-api-context", o.ClusterAPIContext, "context of that kubeconfig (default: its current one)")
	flags.StringVar(&o.BindAddress, "bind-address", o.BindAddress, "address to serve /healthz, /readyz, /metrics and /replication at, without authentication; empty for none")
	flags.IntVar(&o.CopyWorkers, "copy-workers", o.CopyWorkers, "how many objects are written to one cell at once")
	flags.StringVar(&o.StateDir, "state-dir", o.StateDir, "where a snapshot of a failed cell that returns is kept, and what had not reached its backup")
	flags.DurationVar(&o.AutoFailoverAfter, "auto-failover-after", o.AutoFailoverAfter, "give a cell up that has not answered for so long while all others do; 0 leaves that to the operator")
	flags.DurationVar(&o.Election.LeaseDuration, "leader-elect-lease-duration", o.Election.LeaseDuration, "time after which another replica takes over from one that is silent")
	flags.DurationVar(&o.Election.RenewDeadline, "leader-elect-renew-deadline", o.Election.RenewDeadline, "time after which a replica that cannot renew its lease stops")
	flags.DurationVar(&o.Election.RetryPeriod, "leader-elect-retry-period", o.Election.RetryPeriod, "time between attempts to get or renew the lease")
	flags.BoolVar(&o.Admission.AllowNoExecuteTaintPolicy, "allow-no-execute-taint-policy", o.Admission.AllowNoExecuteTaintPolicy, "let ClusterTaintPolicies put on taints that evict workloads")

	status := &o.Clusters.Status
	flags.DurationVar(&status.Interval, "cluster-status-update-frequency", 10*time.Second, "how often the status of a cluster is collected")
	flags.DurationVar(&status.SuccessThreshold, "cluster-success-threshold", 30*time.Second, "how long a cluster must look well before it is ready again")
	flags.DurationVar(&status.FailureThreshold, "cluster-failure-threshold", 30*time.Second, "how long a cluster must look bad before it is no longer ready")
	flags.DurationVar(&status.MonitorInterval, "cluster-monitor-period", 5*time.Second, "how often the lease of a cluster with an agent is looked at")
	flags.DurationVar(&status.MonitorGracePeriod, "cluster-monitor-grace-period", 40*time.Second, "how old the lease of a cluster with an agent may become")
	flags.DurationVar(&status.StartupGracePeriod, "cluster-startup-grace-period", 60*time.Second, "how long the agent of a new cluster may take to come up")
	flags.BoolFunc("enable-cluster-resource-modeling", "watch the nodes and pods of clusters and sum up what they offer and need, also by grades of nodes (default true)", func(text string) error {
		enabled, err := strconv.ParseBool(text)
		status.WithoutResources = !enabled
		return err
	})
}

// completed are options with everything filled in that was left out.
type completed struct {
	Options
	hub      *rest.Config
	identity string
}

// Completed are options that can be validated. Only Complete makes them.
type Completed struct{ *completed }

// Complete finds the hub, and fills in what was left out.
func (o *Options) Complete() (Completed, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	hub, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
	if err != nil {
		return Completed{}, fmt.Errorf("finding the hub: %w; name its kubeconfig with --kubeconfig", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return Completed{}, fmt.Errorf("finding the name of this machine: %w", err)
	}
	c := &completed{Options: *o, hub: hub, identity: host + "_" + uuid.NewString()}
	if o.ClusterAPIKubeconfig != "" {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.ClusterAPIKubeconfig}
		c.Clusters.ClusterAPI, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.ClusterAPIContext}).ClientConfig()
		if err != nil {
			return Completed{}, fmt.Errorf("reading --cluster-api-kubeconfig: %w", err)
		}
	}
	defaults := NewOptions()
	c.CopyWorkers = cmp.Or(c.CopyWorkers, defaults.CopyWorkers)
	c.StateDir = cmp.Or(c.StateDir, defaults.StateDir)
	if c.Election == (Election{}) {
		c.Election = defaults.Election
	}
	return Completed{c}, nil
}

// leastSilence is the shortest time after which a cell may be given up by itself.
const leastSilence = 30 * time.Second

// Validate says in one sentence each what is wrong.
func (c Completed) Validate() error {
	var errs []error
	if c.CopyWorkers < 1 || c.CopyWorkers > 1024 {
		errs = append(errs, fmt.Errorf("--copy-workers must be between 1 and 1024, not %d", c.CopyWorkers))
	}
	if c.AutoFailoverAfter != 0 && c.AutoFailoverAfter < leastSilence {
		errs = append(errs, fmt.Errorf("--auto-failover-after must be at least %s, or 0 for never, not %s: a cell that restarts is silent too", leastSilence, c.AutoFailoverAfter))
	}
	if c.BindAddress != "" {
		if _, _, err := net.SplitHostPort(c.BindAddress); err != nil {
			errs = append(errs, fmt.Errorf("--bind-address must be host:port: %w", err))
		}
	}
	if e := c.Election; e.RetryPeriod <= 0 || e.RenewDeadline <= e.RetryPeriod+e.RetryPeriod/5 || e.LeaseDuration <= e.RenewDeadline {
		errs = append(errs, errors.New("the leader election needs --leader-elect-lease-duration > --leader-elect-renew-deadline > 1.2 × --leader-elect-retry-period > 0"))
	}
	return errors.Join(errs...)
}

// Config returns what can be run. The options must be valid.
func (c Completed) Config() *Config {
	return &Config{
		Hub: c.hub, Identity: c.identity, BindAddress: c.BindAddress, CopyWorkers: c.CopyWorkers, StateDir: c.StateDir, AutoFailoverAfter: c.AutoFailoverAfter,
		Election: c.Election, Admission: c.Admission, Clusters: c.Clusters,
	}
}
