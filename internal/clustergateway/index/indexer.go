package index

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/clustercache"
)

// Times are intervals.
type Times struct {
	// Bulk is how long changes are collected.
	Bulk time.Duration
	// FirstPause doubles up to LongestPause while the search engine does not take operations.
	FirstPause, LongestPause time.Duration
	// Compare is the interval in which all documents are compared with their objects.
	Compare time.Duration
	// Request is the timeout of a request.
	Request time.Duration
	// Secret is the interval in which Secrets are read.
	Secret time.Duration
}

// DefaultTimes returns the usual intervals.
func DefaultTimes() Times {
	return Times{Bulk: time.Second, FirstPause: 500 * time.Millisecond, LongestPause: 30 * time.Second, Compare: time.Hour, Request: 30 * time.Second, Secret: 10 * time.Second}
}

// drainTime is how long changes are collected between the comparisons of two clusters.
const drainTime = 10 * time.Millisecond

// indexer keeps the documents of one kind in one index.
type indexer struct {
	kind     schema.GroupVersionKind
	index    string
	store    *clustercache.Store
	backend  func() (Backend, error)
	times    Times
	metrics  *kindMetrics
	notify   func()        // the progress has changed
	turn     chan struct{} // limits the comparisons at a time
	pending  pending
	limit    int           // size of a bulk
	prepared bool          // the index is there, as far as we know
	pause    time.Duration // after a failure, or zero
	compared time.Time     // when all clusters were last found due
	// clusters are those whose documents may be in the index.
	clusters map[string]*clusterState
	scoped   Scope // that was used for clusters
	// refused are documents that the search engine does not take, by ID.
	refused map[string]refusal
	failure string // why operations fail now, or ""

	mu       sync.Mutex
	scope    Scope
	progress Progress
}

// clusterState is what an indexer knows of a cluster.
type clusterState struct {
	// fresh is set if the store has all its objects and follows them.
	fresh bool
	// due is set if its documents have to be compared with its objects.
	due bool
	// indexed is set once they have been.
	indexed bool
}

// setScope changes what is wanted.
func (x *indexer) setScope(scope Scope) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.scope.equal(scope) {
		x.scope = scope
		x.progress.State, x.progress.Message = Indexing, "what is selected has changed"
	}
}

func (x *indexer) currentScope() Scope {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.scope
}

// run keeps the documents up to date until the context ends.
func (x *indexer) run(ctx context.Context) {
	for ctx.Err() == nil {
		watcher, err := x.store.Watch(clustercache.WatchOptions{From: x.store.Version()})
		if err != nil {
			continue // the version has left the history already
		}
		x.allDue()
		x.follow(ctx, watcher)
		watcher.Close()
	}
}

// follow sends changes until the context ends, or changes were missed.
func (x *indexer) follow(ctx context.Context, watcher *clustercache.Watcher) {
	for ctx.Err() == nil {
		x.inspect()
		x.report()
		if cluster := x.nextDue(); cluster != "" && (x.pause == 0 || x.pending.empty()) {
			x.compare(ctx, cluster)
		}
		window := x.times.Bulk
		switch {
		case x.pause > 0:
			window = x.pause/2 + rand.N(x.pause) // jitter keeps replicas apart
		case x.nextDue() != "":
			window = drainTime
		}
		if err := x.collect(ctx, watcher, window); err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Info("changes were missed; all documents are compared", "err", err)
			}
			return
		}
		x.send(ctx)
	}
}

// inspect finds clusters whose documents have to be compared.
func (x *indexer) inspect() {
	scope := x.currentScope()
	if !scope.equal(x.scoped) {
		for cluster := range scope {
			if was, found := x.scoped[cluster]; found && (was == nil) == (scope[cluster] == nil) && slices.Equal(was, scope[cluster]) {
				continue
			}
			if x.clusters[cluster] == nil {
				x.clusters[cluster] = &clusterState{}
			}
			x.clusters[cluster].due, x.clusters[cluster].indexed = true, false
		}
		x.scoped = scope
	}
	if time.Since(x.compared) >= x.times.Compare {
		x.allDue()
	}
	fresh := map[string]bool{}
	for _, state := range x.store.Clusters() {
		fresh[state.Name] = state.Synced && state.Stale.IsZero()
	}
	for cluster, state := range x.clusters {
		if _, wanted := scope[cluster]; !wanted {
			state.due = true // to delete its documents
			continue
		}
		if fresh[cluster] && !state.fresh {
			state.due = true // its objects may have changed unseen
		}
		state.fresh = fresh[cluster]
	}
}

func (x *indexer) allDue() {
	for _, state := range x.clusters {
		state.due = true
	}
	x.compared = time.Now()
}

// nextDue returns a cluster whose documents have to be compared and can be, or "".
func (x *indexer) nextDue() string {
	for cluster, state := range x.clusters {
		if _, wanted := x.scoped[cluster]; state.due && (state.fresh || !wanted) {
			return cluster
		}
	}
	return ""
}

// collect takes changes for some time, or until there are enough of them. The error is that of the watch.
func (x *indexer) collect(ctx context.Context, watcher *clustercache.Watcher, window time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	for !x.pending.full() {
		event, err := watcher.Next(limited)
		switch {
		case err == nil:
			x.take(event)
		case limited.Err() != nil:
			return ctx.Err()
		default:
			return err
		}
	}
	if x.pause > 0 {
		<-limited.Done()
	}
	return ctx.Err()
}

// take notes a change.
func (x *indexer) take(event *clustercache.Event) {
	o := &event.Object
	if event.Type == watch.Bookmark || event.Marked || !x.scoped.has(o.Cluster, o.Namespace) {
		return
	}
	state := x.clusters[o.Cluster]
	if event.Type != watch.Deleted {
		x.write(o)
		return
	}
	if !state.fresh {
		// The cluster cannot be watched, or is being read again. If the object is gone the comparison will find out.
		state.due = true
		return
	}
	if operation, err := identity(o); err != nil {
		x.refuse(&Operation{ID: o.Cluster + "/" + o.Name, Cluster: o.Cluster, Name: o.Name}, err.Error())
	} else {
		x.pending.add(operation, time.Now())
	}
}

// write notes that the document of an object has to be written.
func (x *indexer) write(o *clustercache.Object) {
	operation, err := identity(o)
	if err == nil {
		operation.Document, err = encode(x.kind, o)
	}
	if err != nil {
		x.refuse(&Operation{ID: o.Cluster + "/" + o.Name, Cluster: o.Cluster, Name: o.Name}, err.Error())
		return
	}
	x.pending.add(operation, time.Now())
}

// send sends one bulk of what is pending.
func (x *indexer) send(ctx context.Context) {
	if x.pending.empty() {
		return
	}
	bulk := x.pending.first(x.limit)
	results, err := x.bulk(ctx, bulk)
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, ErrTooLarge) && len(bulk) > 1:
		x.limit = max(x.limit/2, 1)
		return
	case errors.Is(err, ErrTooLarge):
		results = []Result{{Refused, err.Error()}}
	case err != nil:
		x.fail(ctx, err)
		return
	}
	x.limit = min(x.limit*2, maxBytes)
	x.settle(ctx, bulk, results)
}

func (x *indexer) bulk(ctx context.Context, operations []*Operation) ([]Result, error) {
	backend, err := x.backend()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, x.times.Request)
	defer cancel()
	if err := x.prepare(ctx, backend); err != nil {
		return nil, err
	}
	results, err := backend.Bulk(ctx, x.index, operations)
	if err == nil && len(results) != len(operations) {
		err = fmt.Errorf("the answer has %d results for %d operations", len(results), len(operations))
	}
	return results, err
}

// prepare creates the index, unless it is there.
func (x *indexer) prepare(ctx context.Context, backend Backend) error {
	if x.prepared {
		return nil
	}
	if err := backend.Prepare(ctx, x.index); err != nil {
		return fmt.Errorf("preparing the index %s: %w", x.index, err)
	}
	x.prepared = true
	return nil
}

// settle notes the results of a bulk.
func (x *indexer) settle(ctx context.Context, bulk []*Operation, results []Result) {
	var failure string
	for i, result := range results {
		x.metrics.operation(bulk[i], result.Outcome)
		switch result.Outcome {
		case Refused:
			x.refuse(bulk[i], result.Message)
		case Failed:
			failure = result.Message
		case Missing:
			failure, x.prepared = result.Message, false
			x.allDue()
		case Outdated:
			// A later version of a deleted object was written by another replica, which may not live to see the deletion.
			if state := x.clusters[bulk[i].Cluster]; bulk[i].Document == nil && state != nil {
				state.due = true
			}
		case Applied:
			delete(x.refused, bulk[i].ID)
		}
	}
	x.pending.settle(len(bulk), func(i int) bool { return results[i].Outcome == Failed || results[i].Outcome == Missing })
	if failure != "" {
		x.fail(ctx, errors.New(failure))
		return
	}
	x.recover(ctx)
}

// fail notes that the search engine does not take operations.
func (x *indexer) fail(ctx context.Context, err error) {
	x.pause = min(max(2*x.pause, x.times.FirstPause), x.times.LongestPause)
	x.metrics.failures.Inc()
	if x.failure == "" {
		klog.FromContext(ctx).Info("cannot write to an index", "index", x.index, "err", err)
	}
	x.failure = shorten(err.Error())
	x.report()
}

func (x *indexer) recover(ctx context.Context) {
	if x.failure != "" {
		klog.FromContext(ctx).Info("an index can be written again", "index", x.index)
	}
	x.pause, x.failure = 0, ""
}

// compare compares the documents of a cluster with its objects.
func (x *indexer) compare(ctx context.Context, cluster string) {
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
	case <-ctx.Done():
		return
	}
	state := x.clusters[cluster]
	state.due = false
	maps.DeleteFunc(x.refused, func(_ string, r refusal) bool { return r.cluster == cluster })
	err := (&comparison{indexer: x, cluster: cluster}).run(ctx)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errNotTaken) || apierrors.IsResourceExpired(err):
		state.due = true // again from the start
	case err != nil:
		state.due = true
		x.fail(ctx, fmt.Errorf("comparing the documents of cluster %s: %w", cluster, err))
	default:
		x.recover(ctx)
		if _, wanted := x.scoped[cluster]; !wanted {
			delete(x.clusters, cluster)
		}
		state.indexed = true
	}
}

// newIndexer returns an indexer of a plan. metrics, notify and turn are left to the caller.
func newIndexer(plan Plan, store *clustercache.Store, backend func() (Backend, error), times Times) *indexer {
	return &indexer{
		kind: plan.Kind, index: Name(plan.Kind), store: store, backend: backend, times: times, limit: maxBytes,
		clusters: map[string]*clusterState{}, refused: map[string]refusal{}, scope: plan.Scope,
		progress: Progress{Target: plan.Target, Kind: plan.Kind, State: Indexing, Message: "it has just begun"},
	}
}
