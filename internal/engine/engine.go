package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/binding"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/dependencies"
	"github.com/cellplane/cellplane/internal/engine/detector"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/engine/namespaces"
	"github.com/cellplane/cellplane/internal/engine/quota"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
	"github.com/cellplane/cellplane/internal/engine/status"
	"github.com/cellplane/cellplane/internal/interpreter"
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
	// MetricsAddress is where /metrics, /healthz and /readyz are served, without TLS or authentication: it should be a
	// loopback address. Empty means nowhere.
	MetricsAddress string
	// WorkersPerMember is how many requests are under way to each member at most; 0 means a few.
	WorkersPerMember int
}

// The numbers of workers: writes to the cell mostly wait for etcd.
const (
	detectorWorkers  = 8
	schedulerWorkers = 8
	quotaWorkers     = 2
	bindingWorkers   = 8
	statusWorkers    = 8
	memberWorkers    = 8
	leaseNamePrefix  = "cellplane-engine-"
	userAgentProgram = "cellplane-engine"
)

// A dead leader is replaced after leaseDuration and a retry: within five seconds. A living one has as long as it can
// get to renew, so that a busy machine does not cost it the lead.
const (
	leaseDuration  = 3800 * time.Millisecond
	renewDeadline  = 3300 * time.Millisecond
	retryPeriod    = 400 * time.Millisecond
	requestTimeout = 1500 * time.Millisecond // two tries fit
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
	config   *Config
	client   kubernetes.Interface
	cell     *cell.Cell
	run      []func(context.Context) // while leading
	follow   func(context.Context)   // while standing by, too
	identity string
	logger   klog.Logger
	ready    atomic.Bool
	leading  atomic.Bool
}

func (c *Config) build(ctx context.Context) (*engine, error) {
	config := rest.CopyConfig(c.Config)
	config.UserAgent = rest.DefaultKubernetesUserAgent() + " " + userAgentProgram + "/" + c.Cell
	config.QPS, config.Burst = -1, 0
	client, err := kubernetes.NewForConfig(config)
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
	host, _ := os.Hostname() // only for people
	e := &engine{config: c, client: client, cell: state, identity: host + "_" + uuid.NewString(), logger: klog.FromContext(ctx)}

	recorder := events.NewRecorder(ctx, client)
	meaning := interpreter.New(interpreter.Options{})
	var (
		works    *status.Works
		bindings *status.Bindings
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
	plan := scheduler.New(state, recorder, scheduler.Options{Ledger: promises, Guards: []scheduler.Guard{quotas}, Changed: func(key cell.Key) { bindings.Changed(key) }})
	execute := execution.New(state, meaning, recorder, workers(c.WorkersPerMember), func(key cell.Key) {
		works.Changed(key)
		if work := state.Works.Get(key); work != nil && work.Binding.Name != "" {
			bindings.Changed(work.Binding)
		}
	})
	shares = quota.New(state, quotas, plan, execute.Report, c.Hub)
	works = status.NewWorks(state, execute.Report, recorder)
	bindings = status.NewBindings(state, meaning, plan, execute.Report, recorder)
	bind := binding.New(state, meaning, recorder)
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
	// Reading everything leaves much behind that is not needed again.
	time.AfterFunc(30*time.Second, debug.FreeOSMemory)
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

// electionClient has a connection of its own: renewing the lease must not wait behind large objects.
func (e *engine) electionClient() (coordinationv1.CoordinationV1Interface, error) {
	config := rest.CopyConfig(e.config.Config)
	config.UserAgent = rest.DefaultKubernetesUserAgent() + " " + userAgentProgram + "/" + e.config.Cell
	config.Dial = (&net.Dialer{Timeout: requestTimeout, KeepAlive: 15 * time.Second}).DialContext
	config.Timeout = requestTimeout
	config.QPS = -1
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing leader election: %w", err)
	}
	return client, nil
}

// elect leads when nobody else does. Who has lost the lead must start over, with a fresh picture.
func (e *engine) elect(ctx context.Context) error {
	if err := e.cell.EnsureNamespace(ctx, names.SystemNamespace); err != nil {
		return err
	}
	client, err := e.electionClient()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	led := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: leaseNamePrefix + e.config.Cell},
			Client:     client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Name:            leaseNamePrefix + e.config.Cell,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer close(led)
				klog.FromContext(ctx).Info("leading", "cell", e.config.Cell)
				e.lead(ctx)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("preparing leader election: %w", err)
	}
	elector.Run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	cancel()
	<-led
	return fmt.Errorf("another engine leads cell %s now", e.config.Cell)
}
