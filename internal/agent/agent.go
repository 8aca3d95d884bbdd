package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/agent/credentials"
	"github.com/cellplane/cellplane/internal/agent/tunnels"
	"github.com/cellplane/cellplane/internal/agent/usage"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/engine/interpreted"
	"github.com/cellplane/cellplane/internal/engine/status"
	"github.com/cellplane/cellplane/internal/health"
	"github.com/cellplane/cellplane/internal/hub/clusterstatus"
	"github.com/cellplane/cellplane/internal/interpreter"
)

// Config is the configuration of an agent that can be run.
type Config struct {
	// Cluster is the name of the cluster in the federation.
	Cluster string
	// Federation leads to a gateway, with the identity of the agent. Member leads to the cluster, with all rights there.
	Federation, Member *rest.Config
	// Credentials are those of Federation if they are renewed; otherwise nil.
	Credentials *credentials.Credentials
	// LeaderElect allows several agents for one cluster: one leads, the others stand by.
	LeaderElect bool
	// Workers is the number of concurrent requests to the member, and of reports; 0 means eight.
	Workers int
	// Status is how the status of the cluster is collected; the zero value is valid.
	Status clusterstatus.Options
	// LeaseDuration is how long the Lease of the cluster is valid, which is renewed four times as often; 0 means 40 seconds.
	LeaseDuration time.Duration
	// ReportInterval is how often metrics of workloads are reported; 0 means never.
	ReportInterval time.Duration
	// MetricsOnly is for a cluster in push mode: the agent reports metrics of workloads, and leaves everything else to the federation.
	MetricsOnly bool
	// Tunnel opens tunnels, through which the federation reaches the API server of the cluster in the name of its users.
	Tunnel bool
	// MetricsAddress is where /metrics, /healthz and /readyz are served, without TLS or authentication. Empty means nowhere.
	MetricsAddress string
	// HealthAddress is where only /healthz and /readyz are served, for probes from outside of the host. Empty means nowhere.
	HealthAddress string
}

const (
	defaultWorkers       = 8
	defaultLeaseDuration = 40 * time.Second
	defaultReports       = 15 * time.Second
	reportTimeout        = 30 * time.Second
	program              = "cellplane-agent"
	// followPeriod is how often a replica looks for the certificate that the leader has renewed.
	followPeriod = time.Minute
)

// Validate returns what is wrong with the configuration.
func (c *Config) Validate() error {
	switch {
	case c.Cluster == "":
		return errors.New("the agent needs the name of its cluster")
	case c.Federation == nil || c.Member == nil:
		return errors.New("the agent needs configurations for the gateway and for its cluster")
	case c.ReportInterval < 0:
		return errors.New("the interval of reports must not be negative; 0 means none")
	case c.MetricsOnly && c.ReportInterval == 0:
		return errors.New("an agent that only reports metrics needs an interval of reports")
	}
	return nil
}

// agent is an agent that has been built. Start it, then let it lead.
type agent struct {
	config      *Config
	cell        *cell.Cell // all cells, through the gateway; nil, like what follows, if the agent only reports metrics
	definitions *definitions
	execution   *execution.Controller
	works       *status.Works
	reporter    *clusterstatus.Reporter
	lease       lease.Controller
	reporting   *reporting      // nil without reports
	tunnels     *tunnels.Opener // nil without tunnels
	ready       atomic.Bool
	leading     atomic.Bool
}

// Run runs the agent until the context ends or another agent becomes the leader.
func (c *Config) Run(ctx context.Context) error {
	if err := c.Validate(); err != nil {
		return err
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("cluster", c.Cluster))
	a, err := c.build(ctx)
	if err != nil {
		return err
	}
	if c.Credentials != nil {
		go c.Credentials.Follow(ctx, followPeriod)
	}
	stop, err := health.Part{Ready: a.notReady, Metrics: a.gatherers()}.Serve(ctx, c.MetricsAddress, c.HealthAddress)
	if err != nil {
		return err
	}
	defer stop()
	if a.tunnels != nil {
		var wait sync.WaitGroup
		defer wait.Wait()
		var end context.CancelFunc
		ctx, end = context.WithCancel(ctx)
		defer end()
		wait.Go(func() { a.tunnels.Run(ctx) })
	}
	if err := a.start(ctx); err != nil {
		return err
	}
	if !c.LeaderElect {
		a.lead(ctx)
		return nil
	}
	return a.elect(ctx)
}

// build connects to the gateway and to the member. Nothing is sent yet.
func (c *Config) build(ctx context.Context) (*agent, error) {
	federation := rest.CopyConfig(c.Federation)
	federation.UserAgent = rest.DefaultKubernetesUserAgent() + " " + program + "/" + c.Cluster
	federation.QPS, federation.Burst = -1, 0 // the gateway limits requests
	kube, err := kubernetes.NewForConfig(federation)
	if err != nil {
		return nil, fmt.Errorf("connecting to the gateway: %w", err)
	}
	a := &agent{config: c}
	if c.ReportInterval > 0 {
		collector, err := usage.New(rest.AddUserAgent(rest.CopyConfig(c.Member), program))
		if err != nil {
			return nil, err
		}
		a.reporting = &reporting{cluster: c.Cluster, gateway: kube.Discovery().RESTClient(), collector: collector, interval: c.ReportInterval}
	}
	if c.Tunnel {
		if a.tunnels, err = tunnels.New(c.Cluster, federation, rest.AddUserAgent(rest.CopyConfig(c.Member), program)); err != nil {
			return nil, err
		}
	}
	if c.MetricsOnly {
		return a, nil
	}
	return a, a.buildWorks(ctx, federation, kube)
}

// buildWorks builds what a cluster in pull mode needs besides reports of metrics.
func (a *agent) buildWorks(ctx context.Context, federation *rest.Config, kube kubernetes.Interface) (err error) {
	c := a.config
	if a.cell, err = cell.New(federation, cell.Options{Cluster: c.Cluster}); err != nil {
		return fmt.Errorf("connecting to the gateway: %w", err)
	}
	if a.definitions, err = newDefinitions(c.Member); err != nil {
		return err
	}
	a.buildStages(events.NewRecorder(ctx, kube, events.SuccessesSome))
	if a.reporter, err = c.newReporter(federation); err != nil {
		return err
	}
	valid := c.LeaseDuration
	if valid == 0 {
		valid = defaultLeaseDuration
	}
	a.lease = lease.NewController(clock.RealClock{}, kube, c.Cluster, int32(valid.Round(time.Second)/time.Second), nil, valid/4, c.Cluster, names.ClusterNamespace, nil)
	return nil
}

func (a *agent) buildStages(recorder *events.Recorder) {
	interpreter := interpreter.New(interpreter.Options{})
	own := execution.Own{Config: a.config.Member, Definitions: a.definitions}
	a.execution = execution.NewInMember(a.cell, own, interpreter, recorder, a.config.workers(), func(work cell.Key) { a.works.Changed(work) })
	a.works = status.NewWorks(a.cell, a.execution.Report, recorder)
	interpreted.Follow(a.cell, interpreter, func(affected func(schema.GroupVersionKind) bool) { a.execution.Reinterpret(affected) })
}

func (c *Config) newReporter(federation *rest.Config) (*clusterstatus.Reporter, error) {
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		return nil, err
	}
	objects, err := client.New(federation, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the gateway: %w", err)
	}
	return clusterstatus.NewReporter(objects, c.Cluster, c.Member, c.Status)
}

func (c *Config) workers() int {
	if c.Workers > 0 {
		return c.Workers
	}
	return defaultWorkers
}

// start fills the caches and connects to the member. A standby replica does so, too.
func (a *agent) start(ctx context.Context) error {
	if a.config.MetricsOnly {
		a.ready.Store(true)
		return nil
	}
	began := time.Now()
	if err := a.definitions.start(ctx); err != nil {
		return fmt.Errorf("starting the agent of cluster %s: %w", a.config.Cluster, err)
	}
	if err := a.cell.Start(ctx); err != nil {
		return fmt.Errorf("starting the agent of cluster %s: %w", a.config.Cluster, err)
	}
	a.execution.Start(ctx)
	a.ready.Store(true)
	klog.FromContext(ctx).Info("ready", "works", a.cell.Works.Len(), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// lead applies Works and reports until the context ends.
func (a *agent) lead(ctx context.Context) {
	a.leading.Store(true)
	defer a.leading.Store(false)
	var wait sync.WaitGroup
	stages := []func(context.Context){a.renew}
	if !a.config.MetricsOnly {
		stages = append(stages,
			a.execution.Run,
			func(ctx context.Context) { a.works.Run(ctx, a.config.workers()) },
			a.reporter.Run,
			a.lease.Run,
		)
	}
	if a.reporting != nil {
		stages = append(stages, a.reporting.run)
	}
	for _, stage := range stages {
		wait.Go(func() { stage(ctx) })
	}
	wait.Wait()
}

// renew renews the certificate of the agent, if that was left to it.
func (a *agent) renew(ctx context.Context) {
	if a.config.Credentials == nil {
		return
	}
	if err := a.config.Credentials.Run(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "the certificate of the agent is not renewed")
	}
}
