package engine

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/autoscale"
	"github.com/cellplane/cellplane/internal/engine/autoscaler"
	"github.com/cellplane/cellplane/internal/engine/descheduler"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/expiry"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/schedule"
	"github.com/cellplane/cellplane/internal/schedule/profilefile"
	"github.com/cellplane/cellplane/internal/scrape"
)

// Options are the flags of an engine.
type Options struct {
	// Cell is the name of the cell. Kubeconfig and Context are for its API server.
	Cell, Kubeconfig, Context string
	// FederationKubeconfig is for the gateway's view of all templates, HubKubeconfig for the hub.
	FederationKubeconfig, HubKubeconfig string
	// Hub is set for the engine of the hub.
	Hub bool

	LeaderElect       bool
	Preemption        bool
	SuccessEvents     string // an events.Successes
	SkippedAPIs       []string
	SkippedNamespaces []string // regular expressions
	MetricsAddress    string
	HealthAddress     string
	Scrape            scrape.Options
	PeerAddress       string
	WorkersPerMember  int

	// Profiles is a file with SchedulingProfiles.
	Profiles       string
	Plugins        []string
	EmptyWorkloads bool

	TaintEviction bool
	// PurgeMode is a policyv1alpha1.PurgeMode.
	PurgeMode string
	Failover  Failover
	// MarkTargets lets the HorizontalPodAutoscalers that are propagated own the replicas of their targets in the members. SyncReplicas writes the
	// replicas that members own to the templates.
	MarkTargets, SyncReplicas bool
	Autoscaler                autoscaler.Options
	// FederatedRollouts lets the bounds of rolling updates hold for all clusters together.
	FederatedRollouts bool
	// Deschedule enables the descheduler.
	Deschedule  bool
	Descheduler descheduler.Options
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	o := &Options{
		SkippedNamespaces: []string{"kube-.*"},
		Plugins:           []string{"*"},
		SuccessEvents:     string(events.SuccessesSome),
		TaintEviction:     true,
		FederatedRollouts: true,
		PurgeMode:         string(policyv1alpha1.PurgeModeGracefully),
		Autoscaler:        autoscaler.Options{Settings: autoscale.DefaultSettings, Period: 15 * time.Second},
		Failover:          Failover{GracePeriod: 10 * time.Minute},
		Descheduler:       descheduler.Options{Interval: 2 * time.Minute, Age: 5 * time.Minute},
	}
	o.Failover.Taints.Rates.Normal, o.Failover.Taints.Rates.Disrupted = 200, 2
	return o
}

// AddFlags adds the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Cell, "cell", o.Cell, "name of the cell (required)")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig for the API server of the cell (required)")
	flags.StringVar(&o.Context, "context", o.Context, "context of the kubeconfig to use")
	flags.StringVar(&o.FederationKubeconfig, "federation-kubeconfig", o.FederationKubeconfig, "kubeconfig for the gateway's /federation, to propagate what templates refer to in other cells")
	flags.StringVar(&o.HubKubeconfig, "hub-kubeconfig", o.HubKubeconfig, "kubeconfig for the hub, for what templates refer to there; needs --federation-kubeconfig")
	flags.BoolVar(&o.Hub, "hub", o.Hub, "also propagate cluster-scoped templates and namespaces: for the engine of the hub")
	flags.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "elect a leader among the engines of this cell; only the leader writes")
	flags.BoolVar(&o.Preemption, "policy-preemption", o.Preemption, "let policies with preemption Always take templates from others")
	flags.StringVar(&o.SuccessEvents, "success-events", o.SuccessEvents, "events about successes: some, all that Karmada writes, or off")
	flags.StringSliceVar(&o.SkippedAPIs, "skipped-propagating-apis", o.SkippedAPIs, `what is never propagated, separated by semicolons: "group", "group/version", "group/version/kind,kind", "v1/kind,kind"`)
	flags.StringSliceVar(&o.SkippedNamespaces, "skipped-propagating-namespaces", o.SkippedNamespaces, "regular expressions of namespaces that are not created in members")
	flags.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress, "loopback address for /metrics, /healthz and /readyz, like 127.0.0.1:8080 (default: none)")
	flags.StringVar(&o.HealthAddress, "health-address", o.HealthAddress, "address for /healthz and /readyz alone, for probes of a kubelet, like :8081 (default: none)")
	o.Scrape.AddFlags(flags)
	flags.StringVar(&o.PeerAddress, "peer-address", o.PeerAddress, "address, as IP and port, at which the other engines of this cell notice if this one dies; nothing is sent there (default: a loopback address, for engines on one host)")
	flags.IntVar(&o.WorkersPerMember, "workers-per-member", o.WorkersPerMember, "most concurrent requests to each member (default: 8)")
	flags.StringVar(&o.Profiles, "scheduling-profiles", o.Profiles, "YAML file with SchedulingProfiles that policies may name; profiles in the cell come first")
	flags.StringSliceVar(&o.Plugins, "plugins", o.Plugins, `filters and scores of the scheduler: a name enables one, a name with a minus disables it, "*" stands for all others. Known: `+strings.Join(schedule.PluginNames(), ", "))
	flags.BoolVar(&o.EmptyWorkloads, "enable-empty-workload-propagation", o.EmptyWorkloads, "propagate workloads with divided replicas also to chosen clusters that get no replicas")

	flags.BoolVar(&o.TaintEviction, "enable-no-execute-taint-eviction", o.TaintEviction, "evict workloads from clusters with NoExecute taints that they do not tolerate")
	flags.StringVar(&o.PurgeMode, "no-execute-taint-eviction-purge-mode", o.PurgeMode, "what happens to evicted copies if the policy does not say: Gracefully or Directly")
	flags.Float64Var(&o.Failover.Taints.Rates.Normal, "resource-eviction-rate", o.Failover.Taints.Rates.Normal, "evictions per second while most clusters are healthy")
	flags.Float64Var(&o.Failover.Taints.Rates.Disrupted, "secondary-resource-eviction-rate", o.Failover.Taints.Rates.Disrupted, "evictions per second from a region where most clusters fail")
	flags.DurationVar(&o.Failover.GracePeriod, "graceful-eviction-timeout", o.Failover.GracePeriod, "how long an evicted copy is kept while the new one does not become healthy")
	flags.BoolVar(&o.MarkTargets, "hpa-scale-target-marker", o.MarkTargets, "leave the replicas of workloads that a propagated HorizontalPodAutoscaler scales to the members")
	flags.BoolVar(&o.SyncReplicas, "replicas-syncer", o.SyncReplicas, "write the replicas that members own, if they are divided among them, to the template")
	flags.DurationVar(&o.Autoscaler.Period, "horizontal-pod-autoscaler-sync-period", o.Autoscaler.Period, "how often each autoscaler of the federation decides, if no new metrics come before; 0 turns them off. They need --federation-kubeconfig")
	flags.Float64Var(&o.Autoscaler.Tolerance, "horizontal-pod-autoscaler-tolerance", o.Autoscaler.Tolerance, "how far usage may be from a target without a change, as a part of the target")
	flags.DurationVar(&o.Autoscaler.Stabilization, "horizontal-pod-autoscaler-downscale-stabilization", o.Autoscaler.Stabilization, "time whose highest recommendation counts for a scale-down")
	flags.BoolVar(&o.FederatedRollouts, "federated-rollouts", o.FederatedRollouts, "let maxSurge, maxUnavailable and paused of Deployments and StatefulSets with divided replicas hold for all clusters together")
	flags.BoolVar(&o.Deschedule, "descheduler", o.Deschedule, "move replicas with unschedulable pods to clusters with free capacity")
	flags.DurationVar(&o.Descheduler.Interval, "descheduling-interval", o.Descheduler.Interval, "how often the descheduler looks for unschedulable pods")
	flags.DurationVar(&o.Descheduler.Age, "unschedulable-threshold", o.Descheduler.Age, "how long a pod must have been unschedulable")
}

// completedOptions can be validated.
type completedOptions struct {
	*Options
	cell, federation, hub *rest.Config
	profiles              []*cellplanev1alpha1.SchedulingProfile
	plugins               *schedule.Plugins
	skippedNamespaces     []*regexp.Regexp
	successes             events.Successes
}

// CompletedOptions are options with all files read.
type CompletedOptions struct{ *completedOptions }

// Complete reads files and parses expressions.
func (o *Options) Complete() (CompletedOptions, error) {
	c := &completedOptions{Options: o}
	completed := CompletedOptions{c}
	if o.Kubeconfig == "" {
		return completed, errors.New("--cell and --kubeconfig are required")
	}
	var err error
	if c.cell, err = readKubeconfig(o.Kubeconfig, o.Context); err != nil {
		return completed, err
	}
	if c.federation, err = readKubeconfig(o.FederationKubeconfig, ""); err != nil {
		return completed, err
	}
	if c.hub, err = readKubeconfig(o.HubKubeconfig, ""); err != nil {
		return completed, err
	}
	if c.profiles, err = profilefile.Read(o.Profiles); err != nil {
		return completed, fmt.Errorf("--scheduling-profiles: %w", err)
	}
	if c.plugins, err = schedule.ParsePlugins(o.Plugins); err != nil {
		return completed, fmt.Errorf("--plugins: %w", err)
	}
	if c.successes, err = events.ParseSuccesses(o.SuccessEvents); err != nil {
		return completed, fmt.Errorf("--success-events: %w", err)
	}
	for _, text := range o.SkippedNamespaces {
		expression, err := regexp.Compile("^(?:" + text + ")$")
		if err != nil {
			return completed, fmt.Errorf("--skipped-propagating-namespaces: %w", err)
		}
		c.skippedNamespaces = append(c.skippedNamespaces, expression)
	}
	expiry.Track(
		expiry.Kubeconfig("cell-client", o.Kubeconfig, o.Context),
		expiry.Kubeconfig("federation-client", o.FederationKubeconfig, ""),
		expiry.Kubeconfig("hub-client", o.HubKubeconfig, ""),
	)
	return completed, nil
}

// readKubeconfig reads a kubeconfig; no file means nil.
func readKubeconfig(file, context string) (*rest.Config, error) {
	if file == "" {
		return nil, nil
	}
	kubeconfig, err := fleet.ReadKubeconfig(file, context)
	if err != nil {
		return nil, err
	}
	return kubeconfig.Config(), nil
}

// Validate returns what is wrong with the options.
func (o CompletedOptions) Validate() error {
	var errs []error
	if o.Cell == "" {
		errs = append(errs, errors.New("--cell and --kubeconfig are required"))
	}
	if o.HubKubeconfig != "" && o.FederationKubeconfig == "" {
		errs = append(errs, errors.New("--hub-kubeconfig needs --federation-kubeconfig"))
	}
	if err := o.Scrape.Validate(); err != nil {
		errs = append(errs, err)
	}
	if mode := policyv1alpha1.PurgeMode(o.PurgeMode); mode != policyv1alpha1.PurgeModeGracefully && mode != policyv1alpha1.PurgeModeDirectly {
		errs = append(errs, fmt.Errorf("--no-execute-taint-eviction-purge-mode must be %s or %s, not %q", policyv1alpha1.PurgeModeGracefully, policyv1alpha1.PurgeModeDirectly, o.PurgeMode))
	}
	if rates := o.Failover.Taints.Rates; rates.Normal <= 0 || rates.Disrupted <= 0 {
		errs = append(errs, errors.New("--resource-eviction-rate and --secondary-resource-eviction-rate must be above 0"))
	}
	if a := o.Autoscaler; a.Period < 0 || a.Period > 0 && a.Period < time.Second || a.Tolerance < 0 || a.Stabilization < 0 {
		errs = append(errs, errors.New("--horizontal-pod-autoscaler-sync-period must be 0 or at least 1s, and no other setting of autoscalers below 0"))
	}
	return errors.Join(errs...)
}

// NewConfig returns the Config for options that have been validated.
func NewConfig(o CompletedOptions) *Config {
	c := &Config{
		Cell: o.Cell, Config: o.cell, Federation: o.federation, HubAPI: o.hub, Hub: o.Hub,
		LeaderElect: o.LeaderElect, PeerAddress: o.PeerAddress, MetricsAddress: o.MetricsAddress, HealthAddress: o.HealthAddress, Scrape: o.Scrape, LimitMemory: true,
		Preemption: o.Preemption, SuccessEvents: o.successes, SkippedAPIs: o.SkippedAPIs, SkippedNamespaces: o.skippedNamespaces, WorkersPerMember: o.WorkersPerMember,
		Profiles: o.profiles, Plugins: o.plugins, EmptyWorkloads: o.EmptyWorkloads, Failover: o.Failover,
		MarkTargets: o.MarkTargets, SyncReplicas: o.SyncReplicas, Autoscaler: o.Autoscaler, FederatedRollouts: o.FederatedRollouts,
	}
	c.Failover.WithoutTaints, c.Failover.Taints.PurgeMode = !o.TaintEviction, policyv1alpha1.PurgeMode(o.PurgeMode)
	if o.Deschedule {
		c.Descheduler = &o.Descheduler
	}
	return c
}
