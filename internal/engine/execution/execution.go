// Package execution applies Works in their members and observes the objects there.
//
// Every member has its own queue, workers, connection and cache of our objects. A slow or unreachable member delays only
// its own queue, which is worked off when the member is back.
package execution

import (
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
)

// Interpreter interprets objects in members.
type Interpreter interface {
	Retain(ctx context.Context, desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error)
	ReflectStatus(ctx context.Context, obj *unstructured.Unstructured) (*runtime.RawExtension, error)
	Health(ctx context.Context, obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error)
	PlansRollouts(gvk schema.GroupVersionKind) bool
	Rollout(ctx context.Context, obj *unstructured.Unstructured) (*configv1alpha1.WorkloadRollout, error)
}

// Controller applies Works.
type Controller struct {
	cell        *cell.Cell
	interpreter Interpreter
	recorder    *events.Recorder
	schemas     *schemas
	own         *rest.Config // of the member, in its agent; nil in an engine
	workers     int
	// changed is called with a Work when its [Report] has changed.
	changed func(work cell.Key)
	// answers is called with a cluster when it may answer although it did not before.
	answers func(cluster string)

	mu      sync.Mutex
	queues  map[string]*memberQueue // by cluster
	ctx     context.Context         // of Start
	running context.Context         // of Run; nil before
	wait    sync.WaitGroup

	outcomes    outcomes
	entries     entries
	comparisons comparisons
}

// New returns a controller that watches a cell. Changed is called with a Work when its [Report] has changed.
func New(c *cell.Cell, interpreter Interpreter, recorder *events.Recorder, workersPerMember int, changed func(work cell.Key)) *Controller {
	e := &Controller{cell: c, interpreter: interpreter, recorder: recorder, schemas: newSchemas(c), workers: workersPerMember, changed: changed}
	return e.prepare()
}

// Own is the member that an agent runs in.
type Own struct {
	Config      *rest.Config
	Definitions Definitions
}

// NewInMember returns a controller that runs in a member, and applies only the Works of that member.
func NewInMember(c *cell.Cell, own Own, interpreter Interpreter, recorder *events.Recorder, workers int, changed func(work cell.Key)) *Controller {
	e := &Controller{cell: c, interpreter: interpreter, recorder: recorder, schemas: newSchemas(own.Definitions), own: own.Config, workers: workers, changed: changed}
	return e.prepare()
}

func (e *Controller) prepare() *Controller {
	e.queues, e.outcomes.of, e.answers = map[string]*memberQueue{}, map[cell.Key]Outcome{}, func(string) {}
	e.subscribe()
	return e
}

// OnAnswer has a function called with a cluster when it may answer although it did not before. It is called before Start.
func (e *Controller) OnAnswer(f func(cluster string)) { e.answers = f }

// Start connects to members and watches our objects there until the context ends. It writes nothing.
func (e *Controller) Start(ctx context.Context) {
	e.mu.Lock()
	e.ctx = ctx
	queues := slices.Collect(maps.Values(e.queues))
	e.mu.Unlock()
	for _, q := range queues {
		q.connect()
	}
}

// Run applies Works until the context ends.
func (e *Controller) Run(ctx context.Context) {
	e.mu.Lock()
	e.running = ctx
	for _, q := range e.queues {
		e.run(q)
	}
	e.mu.Unlock()
	<-ctx.Done()
	e.wait.Wait()
}

// run starts the workers of a queue. It is called with the lock held.
func (e *Controller) run(q *memberQueue) {
	ctx := e.running
	e.wait.Go(func() { q.works.Run(ctx, e.workers, q.reconcile) })
}

// queueOf returns the queue of a cluster and creates it if needed.
func (e *Controller) queueOf(cluster string) *memberQueue {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.queues[cluster]
	if q == nil {
		q = newMemberQueue(e, cluster)
		e.queues[cluster] = q
		if e.running != nil {
			e.run(q)
		}
		if e.ctx != nil {
			go q.connect()
		}
	}
	return q
}

// Reinterpret interprets all objects of the affected kinds again, because their interpreter has changed.
func (e *Controller) Reinterpret(affected func(schema.GroupVersionKind) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range e.queues {
		q.reinterpret(affected)
	}
}

// Outcome is the result of the last attempt to apply a Work.
type Outcome struct {
	// Digest of the Work as it was then.
	Digest  uint64
	Applied bool
	// Reason and Message of a failure.
	Reason, Message string
}

type outcomes struct {
	mu sync.Mutex
	of map[cell.Key]Outcome
}

func (o *outcomes) get(work cell.Key) (Outcome, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	outcome, known := o.of[work]
	return outcome, known
}

// set reports whether the outcome has changed.
func (o *outcomes) set(work cell.Key, outcome Outcome) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, known := o.of[work]
	o.of[work] = outcome
	return !known || before != outcome
}

// applied reports whether a Work has been applied as it is now. A member that becomes unreachable does not change that.
func (o *outcomes) applied(work *cell.Work) bool {
	outcome, known := o.get(work.Key)
	return known && outcome.Applied && outcome.Digest == work.Digest
}

func (o *outcomes) forget(work cell.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, work)
}

// Report is what is known about a Work.
type Report struct {
	// Attempted is set if the engine has tried to apply the Work as it is now. Outcome is the result.
	Attempted bool
	Outcome   Outcome
	// Objects are the Work's objects as observed, nil where an object was not.
	Objects []*Observed
	// Trusted is set if objects that were not observed do not exist.
	Trusted bool
	// Resources are the resources by which the member serves the objects' kinds.
	Resources []string
	// Settled is set if no further change is expected.
	Settled bool
	// Open are the objects that are out of the federation's hands.
	Open []Opened
	// Comparison is set if the Work is only reported about, and was compared as it is now. Unmarked are its objects, or those of a Work of which some are open, that do not
	// carry our labels.
	Comparison *Comparison
	Unmarked   []*Observed
}

// Shown returns the observed state of an object for people: also of one that does not carry our labels.
func (r *Report) Shown(i int) *Observed {
	if r.Objects[i] == nil && i < len(r.Unmarked) {
		return r.Unmarked[i]
	}
	return r.Objects[i]
}

// Failed reports whether the last attempt to apply the Work as it is now failed.
func (r *Report) Failed() bool { return r.Attempted && !r.Outcome.Applied }

// HeldBack reports whether nothing but open entries kept the Work from being applied.
func (r *Report) HeldBack() bool { return r.Failed() && r.Outcome.Reason == names.ReasonEntryOpen }

// Report returns what is known about a Work.
func (e *Controller) Report(work *cell.Work) Report {
	if work.Pulled {
		return reported(work)
	}
	q := e.queueOf(work.Cluster)
	report := Report{Objects: make([]*Observed, len(work.Objects)), Resources: make([]string, len(work.Objects)), Trusted: true, Open: e.entries.get(work.Key)}
	report.Comparison = e.comparisons.current(work)
	outcome, known := e.outcomes.get(work.Key)
	report.Attempted, report.Outcome = known && outcome.Digest == work.Digest, outcome
	report.Settled = report.Attempted && outcome.Applied
	for i := range work.Objects {
		object := &work.Objects[i]
		observed, resource, synced := q.observed(object)
		if observed != nil && observed.Work != work.Key {
			observed = nil
		}
		report.Objects[i], report.Resources[i] = observed, resource
		if work.ReportOnly || len(report.Open) > 0 {
			report.Unmarked = append(report.Unmarked, q.unmarkedIn(object, work.Key))
		}
		report.Trusted = report.Trusted && synced
		if observed == nil && object.Kind == "Namespace" && object.Group == "" {
			continue // a namespace that existed before is not managed, so it is not observed
		}
		report.Settled = report.Settled && observed != nil && observed.agreed == object.Fingerprint && observed.settled
	}
	return report
}

// reported returns what a cluster in pull mode reports about a Work.
func reported(work *cell.Work) Report {
	report := Report{Objects: make([]*Observed, len(work.Objects)), Resources: make([]string, len(work.Objects)), Trusted: true}
	// Cellplane's agent says which generation it has applied; others may not.
	if applied := work.Conditions.Find(names.WorkApplied); applied != nil && (applied.ObservedGeneration == 0 || applied.ObservedGeneration == work.Generation) {
		report.Attempted = true
		report.Outcome = Outcome{Digest: work.Digest, Applied: applied.Status == metav1.ConditionTrue}
		if !report.Outcome.Applied {
			report.Outcome.Reason, report.Outcome.Message = applied.Reason, applied.Message
		}
	}
	if differs := work.Conditions.Find(names.Differs); differs != nil && work.ReportOnly && differs.ObservedGeneration == work.Generation {
		report.Comparison = &Comparison{Status: differs.Status, Reason: differs.Reason, Message: differs.Message}
	}
	report.Settled = report.Attempted && report.Outcome.Applied
	for i := range work.Reported {
		status := &work.Reported[i]
		if status.Identifier.Ordinal < 0 || status.Identifier.Ordinal >= len(report.Objects) {
			continue
		}
		observed := &Observed{Work: work.Key, Health: status.Health}
		if status.Status != nil {
			observed.Status = cell.Canonical(status.Status.Raw)
		}
		report.Objects[status.Identifier.Ordinal] = observed
		report.Settled = report.Settled && replicasReady(observed.Status)
	}
	return report
}
