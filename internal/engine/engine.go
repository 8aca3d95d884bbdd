package engine

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/binding"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/dependencies"
	"github.com/cellplane/cellplane/internal/engine/descheduler"
	"github.com/cellplane/cellplane/internal/engine/detector"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/engine/namespaces"
	"github.com/cellplane/cellplane/internal/engine/quota"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
	"github.com/cellplane/cellplane/internal/engine/status"
	"github.com/cellplane/cellplane/internal/interpreter"
	"github.com/cellplane/cellplane/internal/schedule"
)

// Config says what an engine works on.
type Config struct {
	// Cell is the name of the cell.
	Cell string
	// Config is for the cell's API server.
	Config *rest.Config
	// Hub makes this the engine of the hub: it also propagates cluster-scoped templates and namespaces.
	Hub bool
	// LeaderElect lets several engines of one cell run, of which one works and the others stand by.
	LeaderElect bool
	// Preemption lets policies take templates from others.
	Preemption bool
	// SkippedAPIs are groups, group/versions or group/version/kinds that are never propagated.
	SkippedAPIs []string
	// SkippedNamespaces are not made in members, besides those of the control plane. Only the hub's engine makes any.
	SkippedNamespaces []*regexp.Regexp
	// Federation is for the gateway's view of templates alone, and HubAPI for the hub: what templates refer to and
	// another cell holds is sent along through them. Without Federation this cell holds everything; the hub's engine
	// needs no HubAPI.
	Federation, HubAPI *rest.Config
	// Failover says how workloads leave clusters; the zero value will do.
	Failover Failover
	// PeerAddress is where the other engines of the cell hold a connection, to notice at once if this one dies; nothing
	// is sent on it. Empty means a loopback address, which helps engines on one host.
	PeerAddress string
	// Profiles are SchedulingProfiles that every policy may name, besides those in the cell.
	Profiles []*cellplanev1alpha1.SchedulingProfile
	// Plugins are the filters and scores of the scheduler; nil means all of them.
	Plugins *schedule.Plugins
	// EmptyWorkloads has workloads go without replicas to clusters that were chosen and get none.
	EmptyWorkloads bool
	// Descheduler moves replicas whose pods find no node to clusters with room; nil leaves them.
	Descheduler *descheduler.Options
	// MetricsAddress is where /metrics, /healthz and /readyz are served, without TLS or authentication: it should be a
	// loopback address. Empty means nowhere.
	MetricsAddress string
	// GovernMemory bounds the memory of the process by the number of templates. It is for processes that are nothing but
	// an engine.
	GovernMemory bool
	// WorkersPerMember is how many requests are under way to each member at most; 0 means a few.
	WorkersPerMember int
}

// The numbers of workers: writes to the cell mostly wait for etcd. Those that place bindings are many more: what they
// reserve while a ledger is being written is written together, and the hub is spared the most where many wait.
const (
	detectorWorkers   = 16
	schedulerWorkers  = 128
	quotaWorkers      = 2
	descheduleWorkers = 2
	bindingWorkers    = 8
	statusWorkers     = 8
	memberWorkers     = 8
	userAgentProgram  = "cellplane-engine"
)

// Validate returns what is wrong with the configuration.
func (c *Config) Validate() error {
	if c.Cell == "" {
		return errors.New("the engine needs the name of its cell")
	}
	if c.Config == nil {
		return errors.New("the engine needs a configuration for the API server of its cell")
	}
	return nil
}

// Run runs the engine until the context ends, or until another one has taken its place.
func (c *Config) Run(ctx context.Context) error {
	if err := c.Validate(); err != nil {
		return err
	}
	e, err := c.build(ctx)
	if err != nil {
		return err
	}
	if c.MetricsAddress != "" {
		if err := e.serve(ctx, c.MetricsAddress); err != nil {
			return err
		}
	}
	if c.GovernMemory {
		go governMemory(ctx, e.cell.Templates.Len, e.ready.Load)
	}
	if err := e.start(ctx); err != nil {
		return err
	}
	if !c.LeaderElect {
		e.lead(ctx)
		return nil
	}
	return e.elect(ctx)
}

// engine is a built engine.
type engine struct {
	config  *Config
	client  kubernetes.Interface
	cell    *cell.Cell
	run     []func(context.Context) // while leading
	follow  func(context.Context)   // while standing by, too
	logger  klog.Logger
	ready   atomic.Bool
	leading atomic.Bool
}

func (c *Config) build(ctx context.Context) (*engine, error) {
	config := rest.CopyConfig(c.Config)
	config.UserAgent = rest.DefaultKubernetesUserAgent() + " " + userAgentProgram + "/" + c.Cell
	config.QPS, config.Burst = -1, 0
	builtIn := rest.CopyConfig(config) // for kinds that need not be sent as JSON
	builtIn.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(builtIn)
	if err != nil {
		return nil, fmt.Errorf("connecting to cell %s: %w", c.Cell, err)
	}
	state, err := cell.New(config, cell.Options{Name: c.Cell, ClusterScoped: c.Hub, Skip: skipped(c.SkippedAPIs)})
	if err != nil {
		return nil, err
	}
	var elsewhere *dependencies.Elsewhere
	if c.Federation != nil {
		if elsewhere, err = dependencies.NewElsewhere(c.Cell, c.Federation, c.HubAPI); err != nil {
			return nil, err
		}
	}
	e := &engine{config: c, client: client, cell: state, logger: klog.FromContext(ctx)}

	recorder := events.NewRecorder(ctx, client)
	meaning := interpreter.New(interpreter.Options{})
	var (
		works    *status.Works
		bindings *status.Bindings
		bind     *binding.Controller
		shares   *quota.Controller
	)
	promises, err := c.ledger()
	if err != nil {
		return nil, err
	}
	quotas, err := c.quotas(state)
	if err != nil {
		return nil, err
	}
	plan := scheduler.New(state, recorder, scheduler.Options{Ledger: promises, Profiles: c.Profiles, Plugins: c.Plugins, EmptyWorkloads: c.EmptyWorkloads, Guards: []scheduler.Guard{quotas}, Changed: func(key cell.Key) { bindings.Changed(key) }})
	execute := execution.New(state, meaning, recorder, workers(c.WorkersPerMember), func(key cell.Key) {
		works.Changed(key)
		if work := state.Works.Get(key); work != nil && work.Binding.Name != "" {
			bindings.Changed(work.Binding)
		} else {
			shares.Changed(work)
		}
	})
	shares = quota.New(state, quotas, plan, execute.Report, c.Hub)
	works = status.NewWorks(state, execute.Report, recorder)
	bindings = status.NewBindings(state, meaning, plan, execute.Report, func(key cell.Key) string { return bind.Problem(key) }, recorder)
	bind = binding.New(state, meaning, recorder, func(key cell.Key) { bindings.Changed(key) })
	detect := detector.New(state, meaning, plan, recorder, detector.Options{Preemption: c.Preemption, PermanentIDs: c.Hub}, bind.Enqueue)
	depend := dependencies.New(state, elsewhere, meaning, recorder)
	followMeaning(state, meaning, func(concerned func(schema.GroupVersionKind) bool) {
		execute.Reinterpret(concerned)
		detect.Reinterpret(concerned)
		depend.Reinterpret(concerned)
	})

	e.follow = execute.Start
	if promises != nil {
		e.follow = func(ctx context.Context) {
			followLedgers(ctx, promises)
			execute.Start(ctx)
		}
	}
	e.run = []func(context.Context){
		func(ctx context.Context) { detect.Run(ctx, detectorWorkers) },
		func(ctx context.Context) { plan.Run(ctx, schedulerWorkers) },
		c.Failover.controllers(state, plan, recorder),
		func(ctx context.Context) { shares.Run(ctx, quotaWorkers) },
		func(ctx context.Context) { bind.Run(ctx, bindingWorkers) },
		execute.Run,
		func(ctx context.Context) { works.Run(ctx, statusWorkers) },
		func(ctx context.Context) { bindings.Run(ctx, statusWorkers) },
		func(ctx context.Context) { depend.Run(ctx, detectorWorkers) },
	}
	if c.Descheduler != nil {
		move := descheduler.New(state, plan, recorder, c.Descheduler.Complete(descheduler.InMembers(state, execute.Member)))
		e.run = append(e.run, func(ctx context.Context) { move.Run(ctx, descheduleWorkers) })
	}
	if c.Hub {
		spaces := namespaces.New(state, bind.Overrides, c.SkippedNamespaces)
		e.run = append(e.run, func(ctx context.Context) { spaces.Run(ctx, detectorWorkers) })
	}
	return e, nil
}

func workers(configured int) int {
	if configured > 0 {
		return configured
	}
	return memberWorkers
}

// start builds the picture of the cell and of the members.
func (e *engine) start(ctx context.Context) error {
	began := time.Now()
	if err := e.cell.Start(ctx); err != nil {
		return fmt.Errorf("starting the engine of cell %s: %w", e.config.Cell, err)
	}
	e.follow(ctx)
	e.ready.Store(true)
	klog.FromContext(ctx).Info("ready", "cell", e.config.Cell, "templates", e.cell.Templates.Len(), "works", e.cell.Works.Len(), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// lead works until the context ends.
func (e *engine) lead(ctx context.Context) {
	e.leading.Store(true)
	defer e.leading.Store(false)
	var wait sync.WaitGroup
	for _, run := range e.run {
		wait.Go(func() { run(ctx) })
	}
	wait.Wait()
}
