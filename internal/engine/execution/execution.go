// Package execution carries Works to the members they are for, and sees what becomes of them there.
//
// Every member has a lane of its own: a queue, workers, a connection and a picture of our objects. A member that is
// slow or gone holds up its own lane and no other; what waits there is done as soon as it is back.
package execution

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
)

// Interpreter is what execution asks about objects in members.
type Interpreter interface {
	Retain(ctx context.Context, desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error)
	ReflectStatus(ctx context.Context, obj *unstructured.Unstructured) (*runtime.RawExtension, error)
	Health(ctx context.Context, obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error)
}

// Controller keeps Works applied.
type Controller struct {
	cell        *cell.Cell
	interpreter Interpreter
	recorder    *events.Recorder
	schemas     *schemas
	workers     int
	// changed is told of Works of which something new is known.
	changed func(work cell.Key)

	mu      sync.Mutex
	lanes   map[string]*lane
	ctx     context.Context // of Start
	running context.Context // of Run; nil before
	wait    sync.WaitGroup

	outcomes outcomes
}

// New returns a controller that watches a cell. Changed is called with Works of which something new is known.
func New(c *cell.Cell, interpreter Interpreter, recorder *events.Recorder, workersPerMember int, changed func(work cell.Key)) *Controller {
	e := &Controller{cell: c, interpreter: interpreter, recorder: recorder, schemas: newSchemas(c), workers: workersPerMember, changed: changed, lanes: map[string]*lane{}}
	e.outcomes.of = map[cell.Key]Outcome{}
	e.subscribe()
	return e
}

// Start connects to members and follows our objects there until the context ends. Nothing is written.
func (e *Controller) Start(ctx context.Context) {
	e.mu.Lock()
	e.ctx = ctx
	lanes := make([]*lane, 0, len(e.lanes))
	for _, l := range e.lanes {
		lanes = append(lanes, l)
	}
	e.mu.Unlock()
	for _, l := range lanes {
		l.connect()
	}
}

// Run applies Works until the context ends.
func (e *Controller) Run(ctx context.Context) {
	e.mu.Lock()
	e.running = ctx
	for _, l := range e.lanes {
		e.run(l)
	}
	e.mu.Unlock()
	<-ctx.Done()
	e.wait.Wait()
}

// run starts the workers of a lane. It is called with the lock held.
func (e *Controller) run(l *lane) {
	ctx := e.running
	e.wait.Go(func() { l.queue.Run(ctx, e.workers, l.reconcile) })
}

// lane returns the lane of a cluster, which is made if need be.
func (e *Controller) lane(cluster string) *lane {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lanes[cluster]
	if l == nil {
		l = newLane(e, cluster)
		e.lanes[cluster] = l
		if e.running != nil {
			e.run(l)
		}
		if e.ctx != nil {
			go l.connect()
		}
	}
	return l
}

// Reinterpret looks again at all objects of the kinds concerned, because what they mean has changed.
func (e *Controller) Reinterpret(concerned func(schema.GroupVersionKind) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.lanes {
		l.reinterpret(concerned)
	}
}

// Outcome is what became of the last attempt to apply a Work.
type Outcome struct {
	// Digest of the Work that was applied, or not.
	Digest  uint64
	Applied bool
	// Reason and Message say why not.
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

// set reports whether the outcome is another than before.
func (o *outcomes) set(work cell.Key, outcome Outcome) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, known := o.of[work]
	o.of[work] = outcome
	return !known || before != outcome
}

// applied tells whether a Work has been applied as it is now. That a member does not answer does not undo it.
func (o *outcomes) applied(work *cell.Work) bool {
	outcome, known := o.get(work.Key)
	return known && outcome.Applied && outcome.Digest == work.Digest
}

func (o *outcomes) forget(work cell.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, work)
}

// Report is all that is known of a Work.
type Report struct {
	// Attempted is set if it has been tried to apply the Work as it is now; Outcome says how that ended.
	Attempted bool
	Outcome   Outcome
	// Objects are what was seen of the Work's objects, nil where nothing was.
	Objects []*Observed
	// Trusted is set if what was not seen is not there.
	Trusted bool
	// Resources are how the member serves the objects' kinds.
	Resources []string
	// Settled is set if no further change is expected.
	Settled bool
}

// Failed tells whether the last attempt to apply the Work as it is now failed.
func (r *Report) Failed() bool { return r.Attempted && !r.Outcome.Applied }

// Report returns what is known of a Work.
func (e *Controller) Report(work *cell.Work) Report {
	if work.Pulled {
		return reported(work)
	}
	l := e.lane(work.Cluster)
	report := Report{Objects: make([]*Observed, len(work.Objects)), Resources: make([]string, len(work.Objects)), Trusted: true}
	outcome, known := e.outcomes.get(work.Key)
	report.Attempted, report.Outcome = known && outcome.Digest == work.Digest, outcome
	report.Settled = report.Attempted && outcome.Applied
	for i := range work.Objects {
		object := &work.Objects[i]
		observed, resource, synced := l.observed(object)
		if observed != nil && observed.Work != work.Key {
			observed = nil
		}
		report.Objects[i], report.Resources[i] = observed, resource
		report.Trusted = report.Trusted && synced
		if observed == nil && object.Kind == "Namespace" && object.Group == "" {
			continue // one that was there before us is left alone, and nothing is seen of it
		}
		report.Settled = report.Settled && observed != nil && observed.agreed == object.Fingerprint && observed.settled
	}
	return report
}

// reported returns what a cluster that carries a Work by itself says about it.
func reported(work *cell.Work) Report {
	report := Report{Objects: make([]*Observed, len(work.Objects)), Resources: make([]string, len(work.Objects)), Trusted: true}
	if applied := work.Conditions.Find(names.WorkApplied); applied != nil {
		report.Attempted = true
		report.Outcome = Outcome{Digest: work.Digest, Applied: applied.Status == metav1.ConditionTrue}
		if !report.Outcome.Applied {
			report.Outcome.Reason, report.Outcome.Message = applied.Reason, applied.Message
		}
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
		report.Settled = report.Settled && numbersSettled(observed.Status)
	}
	return report
}
