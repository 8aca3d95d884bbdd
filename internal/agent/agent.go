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
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/engine/interpreted"
	"github.com/cellplane/cellplane/internal/engine/status"
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
	// MetricsAddress is where /metrics, /healthz and /readyz are served, without TLS or authentication. Empty means nowhere.
	MetricsAddress string
}

const (
	defaultWorkers       = 8
	defaultLeaseDuration = 40 * time.Second
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
	}
	return nil
}

// agent is an agent that has been built. Start it, then let it lead.
type agent struct {
	config      *Config
	cell        *cell.Cell // all cells, through the gateway
	definitions *definitions
	execution   *execution.Controller
	works       *status.Works
	reporter    *clusterstatus.Reporter
	lease       lease.Controller
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
	if c.MetricsAddress != "" {
		if err := a.serve(ctx, c.MetricsAddress); err != nil {
			return err
		}
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
	state, err := cell.New(federation, cell.Options{Cluster: c.Cluster})
	if err != nil {
		return nil, fmt.Errorf("connecting to the gateway: %w", err)
	}
	a := &agent{config: c, cell: state}
	if a.definitions, err = newDefinitions(c.Member); err != nil {
		return nil, err
	}
	a.buildStages(events.NewRecorder(ctx, kube, events.SuccessesSome))
	if a.reporter, err = c.newReporter(federation); err != nil {
		return nil, err
	}
	valid := c.LeaseDuration
	if valid == 0 {
		valid = defaultLeaseDuration
	}
	a.lease = lease.NewController(clock.RealClock{}, kube, c.Cluster, int32(valid.Round(time.Second)/time.Second), nil, valid/4, c.Cluster, names.ClusterNamespace, nil)
	return a, nil
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
	for _, stage := range []func(context.Context){
		a.execution.Run,
		func(ctx context.Context) { a.works.Run(ctx, a.config.workers()) },
		a.reporter.Run,
		a.lease.Run,
		a.renew,
	} {
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
