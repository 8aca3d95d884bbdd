package index

import (
	"context"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/internal/clustercache"
)

// Options configure Indexers.
type Options struct {
	// Open connects to a search engine.
	Open func(addresses []string, credentials Credentials) (Backend, error)
	// Secret reads a Secret of the hub.
	Secret func(context.Context, types.NamespacedName) (*corev1.Secret, error)
	// Use returns the store of a kind, which is not closed before done is called. removed is closed when that is wanted. It returns nil if
	// the kind is not cached, or not yet.
	Use func(kind schema.GroupVersionKind) (store *clustercache.Store, removed <-chan struct{}, done func())
	// Progressed is called when the progress has changed. It must not block.
	Progressed func()
	// Times are intervals.
	Times Times
}

// Indexers keep indexes as planned.
type Indexers struct {
	// Metrics are those of all indexers.
	Metrics *Metrics

	options Options
	turn    chan struct{}

	mu          sync.Mutex
	ctx         context.Context // of Run, or nil
	plans       []Plan
	running     map[key]*runner
	connections map[Target]*connection
}

type key struct {
	target Target
	kind   schema.GroupVersionKind
}

// runner runs an indexer.
type runner struct {
	*indexer
	cancel context.CancelFunc
	done   chan struct{}
}

// New returns Indexers, which do nothing before Run.
func New(options Options) *Indexers {
	return &Indexers{Metrics: NewMetrics(), options: options, turn: make(chan struct{}, maxComparisons), running: map[key]*runner{}, connections: map[Target]*connection{}}
}

// Run keeps the indexes until the context ends.
func (i *Indexers) Run(ctx context.Context) {
	i.mu.Lock()
	i.ctx = ctx
	i.apply()
	i.mu.Unlock()
	<-ctx.Done()
	i.Plan(nil)
}

// Plan changes what indexes shall have. Each target and kind is planned once. When it returns, indexes that are not planned are left as
// they are. It is called again when a store may have been opened.
func (i *Indexers) Plan(plans []Plan) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.plans = plans
	if i.ctx != nil {
		i.apply()
	}
}

func (i *Indexers) apply() {
	planned, targets := map[key]bool{}, map[Target]bool{}
	for _, plan := range i.plans {
		planned[key{plan.Target, plan.Kind}], targets[plan.Target] = true, true
	}
	for k, r := range i.running {
		if !planned[k] {
			r.cancel()
			<-r.done
			delete(i.running, k)
		}
	}
	for target, c := range i.connections {
		if !targets[target] {
			c.cancel()
			<-c.done
			delete(i.connections, target)
		}
	}
	for _, plan := range i.plans {
		i.ensure(plan)
	}
}

// ensure runs the indexer of a plan, if its kind is cached.
func (i *Indexers) ensure(plan Plan) {
	k := key{plan.Target, plan.Kind}
	if r := i.running[k]; r != nil {
		select {
		case <-r.done: // its store was closed
			delete(i.running, k)
		default:
			r.setScope(plan.Scope)
			return
		}
	}
	if i.ctx.Err() != nil {
		return
	}
	if i.connections[plan.Target] == nil {
		i.connect(plan.Target)
	}
	store, removed, release := i.options.Use(plan.Kind)
	if store == nil {
		return
	}
	connected := i.connections[plan.Target]
	x := newIndexer(plan, store, connected.current, i.options.Times)
	x.metrics, x.notify, x.turn = i.Metrics.ofKind(plan.Kind, plan.Target), i.options.Progressed, i.turn
	ctx, cancel := context.WithCancel(i.ctx)
	r := &runner{indexer: x, cancel: cancel, done: make(chan struct{})}
	i.running[k] = r
	go func() {
		select {
		case <-removed:
			cancel()
		case <-ctx.Done():
		}
	}()
	go func() {
		defer close(r.done)
		defer release()
		defer cancel()
		select {
		case <-connected.read:
			x.run(ctx)
		case <-ctx.Done():
		}
		x.metrics.forget()
	}()
}

func (i *Indexers) connect(target Target) {
	ctx, cancel := context.WithCancel(i.ctx)
	c := &connection{target: target, open: i.options.Open, secret: i.options.Secret, cancel: cancel, read: make(chan struct{}), done: make(chan struct{}), err: errUnread}
	i.connections[target] = c
	go c.run(ctx, i.options.Times.Secret)
}

// Progress returns how far the indexes are.
func (i *Indexers) Progress() []Progress {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := make([]Progress, 0, len(i.plans))
	for _, plan := range i.plans {
		if r := i.running[key{plan.Target, plan.Kind}]; r != nil {
			all = append(all, r.current())
			continue
		}
		all = append(all, Progress{Target: plan.Target, Kind: plan.Kind, State: Indexing, Message: "it is not cached yet"})
	}
	return all
}

// TargetOf returns a target.
func TargetOf(addresses []string, secret types.NamespacedName) Target {
	return Target{Addresses: strings.Join(addresses, " "), Secret: secret}
}
