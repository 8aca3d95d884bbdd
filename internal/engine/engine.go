package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/engine/autoscaled"
	"github.com/cellplane/cellplane/internal/engine/autoscaler"
	"github.com/cellplane/cellplane/internal/engine/binding"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/cronscaler"
	"github.com/cellplane/cellplane/internal/engine/dependencies"
	"github.com/cellplane/cellplane/internal/engine/descheduler"
	"github.com/cellplane/cellplane/internal/engine/detector"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/engine/groups"
	"github.com/cellplane/cellplane/internal/engine/history"
	"github.com/cellplane/cellplane/internal/engine/interpreted"
	"github.com/cellplane/cellplane/internal/engine/multicluster"
	"github.com/cellplane/cellplane/internal/engine/namespaces"
	"github.com/cellplane/cellplane/internal/engine/quota"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
	"github.com/cellplane/cellplane/internal/engine/status"
	"github.com/cellplane/cellplane/internal/interpreter"
	"github.com/cellplane/cellplane/internal/ledger"
	"github.com/cellplane/cellplane/internal/skew"
)

// The numbers of workers: writes to the cell mostly wait for etcd. The scheduler has many more: reservations made while
// a ledger is being written go into one write, so the more bindings wait, the fewer writes the hub gets.
const (
	detectorWorkers     = 16
	schedulerWorkers    = 128
	quotaWorkers        = 2
	deschedulerWorkers  = 2
	autoscaledWorkers   = 2
	autoscalerWorkers   = 4
	multiclusterWorkers = 4
	groupWorkers        = 2
	historyWorkers      = 4
	bindingWorkers      = 8
	statusWorkers       = 8
	memberWorkers       = 8
	userAgentProgram    = "cellplane-engine"
)

// engine is an engine that has been built. Start it, then let it lead.
type engine struct {
	config   *Config
	client   kubernetes.Interface
	cell     *cell.Cell
	ledgers  *ledger.Store // nil without a connection to the hub
	prepare  func(context.Context)
	stages   []func(context.Context)
	metrics  []prometheus.Collector // shown while the engine leads
	recorder *events.Recorder
	logger   klog.Logger
	skew     *skew.Watch // of the cell
	ready    atomic.Bool
	leading  atomic.Bool
}

// build connects to the cell and builds all stages. Nothing runs yet.
func (c *Config) build(ctx context.Context) (*engine, error) {
	config := rest.CopyConfig(c.Config)
	config.UserAgent = rest.DefaultKubernetesUserAgent() + " " + userAgentProgram + "/" + c.Cell
	config.QPS, config.Burst = -1, 0
	builtIn := rest.CopyConfig(config) // built-in kinds need not be sent as JSON
	builtIn.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(builtIn)
	if err != nil {
		return nil, fmt.Errorf("connecting to cell %s: %w", c.Cell, err)
	}
	state, err := cell.New(config, cell.Options{Name: c.Cell, ClusterScoped: c.Hub, Skip: skipped(c.SkippedAPIs)})
	if err != nil {
		return nil, err
	}
	ledgers, err := c.ledger()
	if err != nil {
		return nil, err
	}
	watch, err := skew.New("cell "+c.Cell, builtIn)
	if err != nil {
		return nil, err
	}
	e := &engine{config: c, client: client, skew: watch, cell: state, ledgers: ledgers, recorder: events.NewRecorder(ctx, client, c.SuccessEvents), logger: klog.FromContext(ctx)}
	return e, e.buildStages()
}

// buildStages builds the stages in the order in which they need each other.
func (e *engine) buildStages() error {
	c, state, recorder := e.config, e.cell, e.recorder
	var remotes *dependencies.Remotes
	if c.Federation != nil {
		var err error
		if remotes, err = dependencies.NewRemotes(c.Cell, c.Federation, c.HubAPI); err != nil {
			return err
		}
	}
	hub, err := c.hubClient()
	if err != nil {
		return err
	}
	quotas, grouped := quota.NewGuard(state, hub), groups.NewGuard(state, hub)
	interpreter := interpreter.New(interpreter.Options{})
	notify := &notifier{cell: state}

	// Spec flows down.
	scheduler := scheduler.New(state, recorder, scheduler.Options{
		Ledger: e.ledgers, Profiles: c.Profiles, Plugins: c.Plugins, EmptyWorkloads: c.EmptyWorkloads,
		Guards: []scheduler.Guard{quotas, grouped}, Groups: grouped, Changed: notify.BindingChanged,
	})
	execution := execution.New(state, interpreter, recorder, c.memberWorkers(), notify.WorkChanged)
	binding := binding.New(state, interpreter, recorder, binding.Options{FederatedRollouts: c.FederatedRollouts, Report: execution.Report, Look: execution.Look, Read: execution.Read, Changed: notify.BindingChanged})
	execution.OnAnswer(binding.Answers)
	detector := detector.New(state, interpreter, scheduler, recorder, detector.Options{Preemption: c.Preemption, PermanentIDs: c.Hub}, binding.Enqueue)
	dependencies := dependencies.New(state, remotes, interpreter, recorder)

	// Status flows up.
	notify.binding = binding
	notify.workStatus = status.NewWorks(state, execution.Report, recorder)
	notify.bindingStatus = status.NewBindings(state, interpreter, scheduler, execution.Report, binding, recorder)
	notify.quota = quota.New(state, quotas, scheduler, execution.Report, recorder, c.Hub)

	groups := groups.New(grouped, c.Hub, scheduler.RetryGroup)

	interpreted.Follow(state, interpreter, func(affected func(schema.GroupVersionKind) bool) {
		execution.Reinterpret(affected)
		detector.Reinterpret(affected)
		dependencies.Reinterpret(affected)
	})
	e.prepare = execution.Start
	failover, waiting := c.Failover.controllers(state, scheduler, recorder)
	e.metrics = append([]prometheus.Collector{scheduler}, waiting...)
	e.stages = []func(context.Context){
		func(ctx context.Context) { detector.Run(ctx, detectorWorkers) },
		func(ctx context.Context) { scheduler.Run(ctx, schedulerWorkers) },
		failover,
		func(ctx context.Context) { notify.quota.Run(ctx, quotaWorkers) },
		func(ctx context.Context) { groups.Run(ctx, groupWorkers) },
		func(ctx context.Context) { binding.Run(ctx, bindingWorkers) },
		execution.Run,
		func(ctx context.Context) { notify.workStatus.Run(ctx, statusWorkers) },
		func(ctx context.Context) { notify.bindingStatus.Run(ctx, statusWorkers) },
		func(ctx context.Context) { dependencies.Run(ctx, detectorWorkers) },
	}
	if c.Descheduler != nil {
		descheduler := descheduler.New(state, scheduler, recorder, c.Descheduler.Complete(descheduler.InMembers(state, execution.Member)))
		e.stages = append(e.stages, func(ctx context.Context) { descheduler.Run(ctx, deschedulerWorkers) })
	}
	if c.MarkTargets {
		marker, err := autoscaled.NewMarker(state, c.Federation)
		if err != nil {
			return err
		}
		e.stages = append(e.stages, func(ctx context.Context) { marker.Run(ctx, autoscaledWorkers) })
	}
	if c.SyncReplicas {
		syncer := autoscaled.NewSyncer(state)
		e.stages = append(e.stages, func(ctx context.Context) { syncer.Run(ctx, autoscaledWorkers) })
	}
	if !c.Hub && c.Federation != nil && c.Autoscaler.Period > 0 {
		autoscaler, err := autoscaler.New(state, c.Federation, recorder, c.Autoscaler)
		if err != nil {
			return err
		}
		cron, err := cronscaler.New(state, c.Config, c.Federation, recorder)
		if err != nil {
			return err
		}
		e.stages = append(e.stages, func(ctx context.Context) { autoscaler.Run(ctx, autoscalerWorkers) }, func(ctx context.Context) { cron.Run(ctx, autoscalerWorkers) })
	}
	if !c.Hub {
		history := history.New(state)
		e.stages = append(e.stages, func(ctx context.Context) { history.Run(ctx, historyWorkers) })
		multicluster := multicluster.New(state, execution, recorder)
		e.stages = append(e.stages, func(ctx context.Context) { multicluster.Run(ctx, multiclusterWorkers) })
	}
	if c.Hub {
		namespaces := namespaces.New(state, binding.Overrides, c.SkippedNamespaces)
		e.stages = append(e.stages, func(ctx context.Context) { namespaces.Run(ctx, detectorWorkers) })
	}
	return nil
}

func (c *Config) memberWorkers() int {
	if c.WorkersPerMember > 0 {
		return c.WorkersPerMember
	}
	return memberWorkers
}

// start fills the caches of the cell and connects to the members. A standby replica does so, too.
func (e *engine) start(ctx context.Context) error {
	began := time.Now()
	if err := e.cell.Start(ctx); err != nil {
		return fmt.Errorf("starting the engine of cell %s: %w", e.config.Cell, err)
	}
	if e.ledgers != nil {
		watchLedgers(ctx, e.ledgers)
	}
	e.prepare(ctx)
	e.ready.Store(true)
	klog.FromContext(ctx).Info("ready", "cell", e.config.Cell, "templates", e.cell.Templates.Len(), "works", e.cell.Works.Len(), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// leadUnlessRefused leads until the context ends, or the cell is of a release that does not go with this one.
func (e *engine) leadUnlessRefused(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var refused error
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		refused = e.skew.Refused(ctx)
		cancel()
	}()
	e.lead(ctx)
	cancel()
	<-watching
	return refused
}

// lead runs all stages until the context ends.
func (e *engine) lead(ctx context.Context) {
	e.leading.Store(true)
	defer e.leading.Store(false)
	var wait sync.WaitGroup
	for _, stage := range e.stages {
		wait.Go(func() { stage(ctx) })
	}
	wait.Wait()
}
