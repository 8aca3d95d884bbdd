package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/engine/descheduler"
	"github.com/cellplane/cellplane/internal/schedule"
	"github.com/cellplane/cellplane/internal/schedule/profilefile"
)

// engineOptions are the flags of the engine command.
type engineOptions struct {
	cell              string
	kubeconfig        string
	context           string
	federation        string
	hubKubeconfig     string
	hub               bool
	leaderElect       bool
	preemption        bool
	skippedAPIs       []string
	skippedNamespaces []string
	metricsAddress    string
	peerAddress       string
	workersPerMember  int
	failover          engine.Failover
	taintEviction     bool
	purgeMode         string
	deschedule        bool
	descheduler       descheduler.Options
	profiles          string
	plugins           []string
	emptyWorkloads    bool
}

func newEngine() *cobra.Command {
	o := engineOptions{plugins: []string{"*"}, skippedNamespaces: []string{"kube-.*"}, taintEviction: true, purgeMode: string(policyv1alpha1.PurgeModeGracefully)}
	cmd := &cobra.Command{
		Use:     "engine",
		GroupID: groupParts,
		Short:   "Run the federation controllers of one cell",
		Long: `Run the federation controllers of one cell: they propagate the templates in the
cell to the member clusters that policies select, and collect their status.

Run two or more replicas with --leader-elect: one leads, the others stand by
with warm caches and take over within seconds.`,
		Example: `  cellplane engine --cell cell-a --kubeconfig cell-a.kubeconfig --leader-elect
  cellplane engine --cell hub --hub --kubeconfig hub.kubeconfig`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := o.complete()
			if err != nil {
				return err
			}
			return runUntilSignal(cmd.Context(), config.Run)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.cell, "cell", "", "name of the cell (required)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the cell (required)")
	flags.StringVar(&o.context, "context", "", "context in the kubeconfig")
	flags.StringVar(&o.federation, "federation-kubeconfig", "", "kubeconfig of the gateway's /federation path, to propagate dependencies that are in other cells")
	flags.StringVar(&o.hubKubeconfig, "hub-kubeconfig", "", "kubeconfig of the hub, to propagate dependencies that are in the hub; needs --federation-kubeconfig")
	flags.BoolVar(&o.hub, "hub", false, "this is the engine of the hub: also propagate cluster-scoped templates and namespaces")
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "run the controllers only while holding the lease of the cell")
	flags.BoolVar(&o.preemption, "policy-preemption", false, "let policies with preemption Always claim templates of other policies")
	flags.StringSliceVar(&o.skippedAPIs, "skipped-propagating-apis", nil, `APIs that are never propagated, separated by semicolons: "group", "group/version", "group/version/kind,kind" or "v1/kind,kind"`)
	flags.StringSliceVar(&o.skippedNamespaces, "skipped-propagating-namespaces", o.skippedNamespaces, "regular expressions of namespaces that are not created in members")
	flags.StringVar(&o.metricsAddress, "metrics-address", "", "loopback address of /metrics, /healthz and /readyz, such as 127.0.0.1:8080 (default: none)")
	flags.StringVar(&o.peerAddress, "peer-address", "", "IP and port where the other engines of this cell detect that this one has died; no data is sent (default: a loopback address, for engines on one host)")
	flags.IntVar(&o.workersPerMember, "workers-per-member", 0, "concurrent requests to each member (default: a few)")
	flags.StringVar(&o.profiles, "scheduling-profiles", "", "YAML file with SchedulingProfiles for policies; profiles in the cell take precedence")
	flags.StringSliceVar(&o.plugins, "plugins", o.plugins, `scheduler plugins: NAME enables one, -NAME disables one, "*" stands for all others. Plugins: `+strings.Join(schedule.PluginNames(), ", "))
	flags.BoolVar(&o.emptyWorkloads, "enable-empty-workload-propagation", false, "propagate workloads with divided replicas also to selected clusters that get no replicas")
	o.addFailoverFlags(flags)
	return cmd
}

// addFailoverFlags adds the flags for evicting workloads from clusters.
func (o *engineOptions) addFailoverFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.taintEviction, "enable-no-execute-taint-eviction", o.taintEviction, "evict workloads from clusters with NoExecute taints they do not tolerate")
	flags.StringVar(&o.purgeMode, "no-execute-taint-eviction-purge-mode", o.purgeMode, "how evicted copies are removed if the policy does not say: Gracefully or Directly")
	flags.Float64Var(&o.failover.Taints.Rates.Normal, "resource-eviction-rate", 200, "evictions per second while most clusters are healthy")
	flags.Float64Var(&o.failover.Taints.Rates.Disrupted, "secondary-resource-eviction-rate", 2, "evictions per second from a region where most clusters are unhealthy")
	flags.DurationVar(&o.failover.GracePeriod, "graceful-eviction-timeout", 10*time.Minute, "how long an evicted copy is kept while its replacement is not healthy")
	flags.BoolVar(&o.deschedule, "descheduler", false, "move replicas with unschedulable pods to clusters with free capacity")
	flags.DurationVar(&o.descheduler.Interval, "descheduling-interval", 2*time.Minute, "how often the descheduler looks for unschedulable pods")
	flags.DurationVar(&o.descheduler.Age, "unschedulable-threshold", 5*time.Minute, "how long a pod must be unschedulable before its replica moves")
}

func (o *engineOptions) complete() (*engine.Config, error) {
	if o.cell == "" || o.kubeconfig == "" {
		return nil, errors.New("--cell and --kubeconfig are required")
	}
	if err := checkLoopback(o.metricsAddress); err != nil {
		return nil, err
	}
	if o.hubKubeconfig != "" && o.federation == "" {
		return nil, errors.New("--hub-kubeconfig needs --federation-kubeconfig")
	}
	client, err := optionalKubeconfig(o.kubeconfig, o.context)
	if err != nil {
		return nil, err
	}
	federation, err := optionalKubeconfig(o.federation, "")
	if err != nil {
		return nil, err
	}
	hub, err := optionalKubeconfig(o.hubKubeconfig, "")
	if err != nil {
		return nil, err
	}
	config := &engine.Config{
		Cell: o.cell, Config: client, Federation: federation, HubAPI: hub, Hub: o.hub, LeaderElect: o.leaderElect, Preemption: o.preemption,
		SkippedAPIs: o.skippedAPIs, MetricsAddress: o.metricsAddress, PeerAddress: o.peerAddress, GovernMemory: true, WorkersPerMember: o.workersPerMember,
	}
	if config.Profiles, err = profilefile.Read(o.profiles); err != nil {
		return nil, fmt.Errorf("--scheduling-profiles: %w", err)
	}
	if config.Plugins, err = schedule.ParsePlugins(o.plugins); err != nil {
		return nil, fmt.Errorf("--plugins: %w", err)
	}
	config.EmptyWorkloads = o.emptyWorkloads
	if err := o.completeFailover(config); err != nil {
		return nil, err
	}
	for _, text := range o.skippedNamespaces {
		expression, err := regexp.Compile("^(?:" + text + ")$")
		if err != nil {
			return nil, fmt.Errorf("--skipped-propagating-namespaces: %w", err)
		}
		config.SkippedNamespaces = append(config.SkippedNamespaces, expression)
	}
	return config, config.Validate()
}

func (o *engineOptions) completeFailover(config *engine.Config) error {
	mode := policyv1alpha1.PurgeMode(o.purgeMode)
	if mode != policyv1alpha1.PurgeModeGracefully && mode != policyv1alpha1.PurgeModeDirectly {
		return fmt.Errorf("--no-execute-taint-eviction-purge-mode must be %s or %s, not %q", policyv1alpha1.PurgeModeGracefully, policyv1alpha1.PurgeModeDirectly, o.purgeMode)
	}
	if rates := o.failover.Taints.Rates; rates.Normal <= 0 || rates.Disrupted <= 0 {
		return errors.New("--resource-eviction-rate and --secondary-resource-eviction-rate must be above 0")
	}
	config.Failover = o.failover
	config.Failover.WithoutTaints, config.Failover.Taints.PurgeMode = !o.taintEviction, mode
	if o.deschedule {
		config.Descheduler = &o.descheduler
	}
	return nil
}

// optionalKubeconfig reads a kubeconfig, or returns nil if no file is given.
func optionalKubeconfig(file, context string) (*rest.Config, error) {
	if file == "" {
		return nil, nil
	}
	config, err := loadKubeconfig(file, context)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return config, nil
}

// checkLoopback refuses addresses that other hosts can reach: metrics are served without authentication.
func checkLoopback(address string) error {
	if address == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--metrics-address: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--metrics-address %s is not a loopback address; metrics are served without authentication", address)
	}
	return nil
}

// runUntilSignal runs a part of a federation. A stop by signal is not an error.
func runUntilSignal(ctx context.Context, run func(context.Context) error) error {
	if err := run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}
