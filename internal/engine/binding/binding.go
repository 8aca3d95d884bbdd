// Package binding writes the Works of bindings: one for each cluster that a template is placed in, with the template as
// that cluster should get it.
package binding

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/engine/policies"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/lockedset"
	"github.com/cellplane/cellplane/internal/override"
	"github.com/cellplane/cellplane/internal/rollout"
)

// Interpreter interprets templates.
type Interpreter interface {
	Prune(template *unstructured.Unstructured) (*unstructured.Unstructured, error)
	ReviseReplica(ctx context.Context, obj *unstructured.Unstructured, replicas int32) (*unstructured.Unstructured, error)
	Replicas(ctx context.Context, obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error)
	Components(ctx context.Context, obj *unstructured.Unstructured) ([]workv1alpha2.Component, error)
	PlansRollouts(gvk schema.GroupVersionKind) bool
	Rollout(ctx context.Context, obj *unstructured.Unstructured) (*configv1alpha1.WorkloadRollout, error)
	ReviseRollout(ctx context.Context, obj *unstructured.Unstructured, grant configv1alpha1.RolloutGrant) (*unstructured.Unstructured, error)
}

// Controller writes the Works of bindings.
type Controller struct {
	cell        *cell.Cell
	interpreter Interpreter
	recorder    *events.Recorder
	queue       *queue.Queue[cell.Key]
	problems    problems
	overrides   overrides
	set         atomic.Pointer[override.Set]
	rollouts    policies.Rollouts

	// federated is whether rollouts are planned for all clusters together, and awaiting has those that wait without a ledger.
	federated bool
	report    func(*cell.Work) execution.Report
	look      func(context.Context, *cell.Work) (*rollout.Live, error)
	read      func(ctx context.Context, cluster string, gvk schema.GroupVersionKind, key cell.Key) (*unstructured.Unstructured, error)
	awaiting  lockedset.Set[cell.Key]
	left      left
}

// Options are what a controller needs besides the cell.
type Options struct {
	// FederatedRollouts lets the bounds of workloads with divided replicas hold for all clusters together.
	FederatedRollouts bool
	// Report returns what is known about a Work.
	Report func(*cell.Work) execution.Report
	// Look reads how far the workload of a Work is by its pods, from the member.
	Look func(context.Context, *cell.Work) (*rollout.Live, error)
	// Read reads an object from a member; nil if there is none.
	Read func(ctx context.Context, cluster string, gvk schema.GroupVersionKind, key cell.Key) (*unstructured.Unstructured, error)
	// Changed is called with a binding when its [Controller.Problem] changes.
	Changed func(binding cell.Key)
}

// New returns a controller that watches a cell.
func New(c *cell.Cell, interpreter Interpreter, recorder *events.Recorder, options Options) *Controller {
	b := &Controller{
		cell: c, interpreter: interpreter, recorder: recorder, queue: queue.New[cell.Key]("binding"),
		problems: problems{changed: options.Changed, of: map[cell.Key]string{}}, federated: options.FederatedRollouts, report: options.Report, look: options.Look, read: options.Read,
	}
	b.overrides.init(b)
	b.watchRolloutPolicies()
	b.subscribe()
	rolloutWaits.follow(c)
	return b
}

// Enqueue reconciles a binding soon.
func (b *Controller) Enqueue(key cell.Key) { b.queue.AddNow(key) }

// Run reconciles until the context ends.
func (b *Controller) Run(ctx context.Context, workers int) { b.queue.Run(ctx, workers, b.Reconcile) }

// evictionPoll is how often a new cluster checks whether the old one has been cleared.
const evictionPoll = 5 * time.Second

// Reconcile creates, updates and deletes the Works of a binding.
func (b *Controller) Reconcile(ctx context.Context, key cell.Key) error {
	start := time.Now()
	binding := b.cell.Binding(key)
	switch {
	case binding == nil:
		b.problems.set(key, "")
		b.awaiting.Remove(key)
		b.left.forget(key)
		return b.deleteWorks(ctx, b.cell.WorksOf(key))
	case binding.Labels[names.RebalanceStatusLabel] != "":
		b.left.forget(key)
		return nil
	case binding.DeletionTimestamp != nil:
		return b.remove(ctx, binding)
	}

	// 1. Render what the clusters should get in the end, unless a quota does not allow it.
	template := b.template(binding)
	if template == nil || template.Frozen {
		return nil // deleted, or not ours: the detector decides about the binding
	}
	targets, works := targetsOf(&binding.Spec), b.cell.WorksOf(key)
	held, err := b.held(ctx, binding, template)
	if err != nil {
		return b.failed(binding, names.EventSyncWorkFailed, err)
	}

	// 2. Plan which of it they get now.
	var copies []rendered
	var failures []error
	if !held {
		copies, failures = b.render(ctx, binding, template, targets)
	}
	var plan *planned
	if held || len(copies) == 0 && len(failures) > 0 {
		plan, err = b.heldPlan(binding)
	} else {
		plan, err = b.plan(ctx, binding, template, targets, works, copies)
	}
	if err != nil {
		return b.failed(binding, names.EventSyncWorkFailed, errors.Join(append(failures, err)...))
	}

	// 3. Delete Works in clusters that are no longer chosen, unless they still have pods or are being evicted gracefully.
	leaving := slices.DeleteFunc(b.orphans(&binding.Spec, works, targets), func(work *cell.Work) bool { return plan.stays[work.Cluster] })
	if err := b.deleteWorks(ctx, leaving); err != nil {
		return b.failed(binding, names.EventCleanupWorkFailed, err)
	}

	// 4. Create or update the others.
	waits := plan.blocked || purging(&binding.Spec, works)
	written, err := b.write(ctx, template, works, plan.wanted, waits)
	syncDuration.WithLabelValues(result(err)).Observe(time.Since(start).Seconds())
	if err = errors.Join(append(failures, err)...); err != nil {
		return b.failed(binding, names.EventSyncWorkFailed, err)
	}
	b.problems.set(key, "")
	for _, about := range events.Both(b.cell, binding) {
		b.recorder.Also(about, "works", names.EventSyncWorkSucceed, "the Works of the binding are up to date", written > 0 || len(leaving) > 0)
	}
	switch {
	case waits:
		return queue.Later{After: evictionPoll}
	case plan.after > 0:
		return queue.Later{After: plan.after}
	default:
		return nil
	}
}

func (b *Controller) failed(binding *workv1alpha2.ResourceBinding, reason string, err error) error {
	if !isTransient(err) {
		for _, about := range events.Both(b.cell, binding) {
			b.recorder.Failed(about, "works", reason, err.Error())
		}
		b.problems.set(cell.Key{Namespace: binding.Namespace, Name: binding.Name}, describe(err))
	}
	return err
}

// template returns the template of a binding, nil if it is deleted or being deleted.
func (b *Controller) template(binding *workv1alpha2.ResourceBinding) *cell.Template {
	template := b.cell.TemplateOf(binding)
	if template == nil || template.Deleting {
		return nil
	}
	return template
}

// targetsOf returns the clusters of a binding: those chosen for it, and those of the bindings that depend on it.
func targetsOf(spec *workv1alpha2.ResourceBindingSpec) []workv1alpha2.TargetCluster {
	targets := slices.Clone(spec.Clusters)
	for i := range spec.RequiredBy {
		for j := range spec.RequiredBy[i].Clusters {
			name := spec.RequiredBy[i].Clusters[j].Name
			if !slices.ContainsFunc(targets, func(t workv1alpha2.TargetCluster) bool { return t.Name == name }) {
				targets = append(targets, workv1alpha2.TargetCluster{Name: name, Replicas: spec.Replicas})
			}
		}
	}
	return targets
}

// orphans returns the Works in clusters that are neither chosen nor being evicted gracefully.
func (b *Controller) orphans(spec *workv1alpha2.ResourceBindingSpec, works []*cell.Work, targets []workv1alpha2.TargetCluster) []*cell.Work {
	var orphans []*cell.Work
	for _, work := range works {
		chosen := slices.ContainsFunc(targets, func(t workv1alpha2.TargetCluster) bool { return t.Name == work.Cluster })
		evicted := slices.ContainsFunc(spec.GracefulEvictionTasks, func(task workv1alpha2.GracefulEvictionTask) bool {
			return task.FromCluster == work.Cluster && task.PurgeMode != policyv1alpha1.PurgeModeDirectly
		})
		if !chosen && !evicted {
			orphans = append(orphans, work)
		}
	}
	return orphans
}

// purging reports whether a cluster that is evicted directly still has its Work. Until it is gone, no new cluster gets
// one.
func purging(spec *workv1alpha2.ResourceBindingSpec, works []*cell.Work) bool {
	return slices.ContainsFunc(spec.GracefulEvictionTasks, func(task workv1alpha2.GracefulEvictionTask) bool {
		return task.PurgeMode == policyv1alpha1.PurgeModeDirectly &&
			slices.ContainsFunc(works, func(work *cell.Work) bool { return work.Cluster == task.FromCluster })
	})
}

// write creates and updates Works concurrently. Errors are in the order of the clusters, so that the same failure has
// the same message. It returns how many were written.
func (b *Controller) write(ctx context.Context, template *cell.Template, works []*cell.Work, wanted []*workv1alpha1.Work, onlyKnown bool) (int, error) {
	var group sync.WaitGroup
	var count atomic.Int64
	errs := make([]error, len(wanted))
	for n, work := range wanted {
		var now *cell.Work
		if i := slices.IndexFunc(works, func(w *cell.Work) bool { return w.Namespace == work.Namespace && w.Name == work.Name }); i >= 0 {
			now = works[i]
		}
		if now != nil || !onlyKnown {
			group.Go(func() {
				written, err := b.writeOne(ctx, template, now, work)
				if errs[n] = err; written {
					count.Add(1)
				}
			})
		}
	}
	group.Wait()
	return int(count.Load()), errors.Join(errs...)
}

// writeOne creates or updates a Work and records an event if the overrides in it have changed. It reports whether the Work was written.
func (b *Controller) writeOne(ctx context.Context, template *cell.Template, now *cell.Work, wanted *workv1alpha1.Work) (bool, error) {
	overrides, before := cell.OverridesDigest(wanted.Annotations), uint64(0)
	var written bool
	var err error
	if now == nil {
		written, err = true, b.create(ctx, wanted)
	} else {
		before = now.Overrides
		written, err = b.update(ctx, now, wanted)
	}
	if err != nil {
		return false, err
	}
	cluster, _ := names.ClusterFromExecutionNamespace(wanted.Namespace)
	b.recorder.Succeeded(events.OfTemplate(template), overrideAspect(cluster), names.EventApplyOverridePolicySucceed,
		"override policies applied for cluster "+cluster, written && overrides != 0 && overrides != before)
	return written, nil
}

func overrideAspect(cluster string) string { return "override:" + cluster }

// rightsAspect is of overrides that were left out of a Work, which succeeds otherwise.
func rightsAspect(cluster string) string { return "rights:" + cluster }

// update updates a Work if it differs, and reports whether it was written.
func (b *Controller) update(ctx context.Context, now *cell.Work, wanted *workv1alpha1.Work) (bool, error) {
	switch {
	case now.Frozen:
		return false, nil
	case now.Deleting:
		return false, queue.Later{After: time.Second} // its deletion enqueues the binding
	case now.Digest == digestOf(wanted) && slices.Contains(now.Finalizers, names.ExecutionFinalizer):
		return false, nil
	default:
		_, err := b.cell.UpdateWork(ctx, now, wanted)
		return true, err
	}
}

// create creates a Work, and its namespace if needed.
func (b *Controller) create(ctx context.Context, work *workv1alpha1.Work) error {
	if err := b.cell.EnsureNamespace(ctx, work.Namespace); err != nil {
		return err
	}
	maps.DeleteFunc(work.Annotations, func(_, value string) bool { return value == "" })
	_, err := b.cell.CreateWork(ctx, work)
	return err
}

func (b *Controller) deleteWorks(ctx context.Context, works []*cell.Work) error {
	var group errgroup.Group
	for _, work := range works {
		if !work.Deleting && !work.Frozen {
			group.Go(func() error { return b.cell.DeleteWork(ctx, work) })
		}
	}
	return group.Wait()
}

// remove deletes the Works of a binding that is being deleted, then removes the binding's finalizer.
func (b *Controller) remove(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	finalizer := names.BindingFinalizer
	if binding.Namespace == "" {
		finalizer = names.ClusterResourceBindingFinalizer
	}
	if !slices.Contains(binding.Finalizers, finalizer) {
		return nil
	}
	if works := b.cell.WorksOf(cell.Key{Namespace: binding.Namespace, Name: binding.Name}); len(works) > 0 {
		if err := b.deleteWorks(ctx, works); err != nil {
			return b.failed(binding, names.EventCleanupWorkFailed, err)
		}
		return nil // the deletion of the last one enqueues the binding
	}
	if some, err := b.reclaimAll(ctx, binding); some || err != nil {
		if err != nil {
			return b.failed(binding, names.EventCleanupWorkFailed, err)
		}
		return queue.Later{After: leftPoll} // a Work that was created, or a cluster that answers, enqueues the binding earlier
	}
	binding = binding.DeepCopy()
	binding.Finalizers = slices.DeleteFunc(binding.Finalizers, func(f string) bool { return f == finalizer })
	_, err := b.cell.UpdateBinding(ctx, binding)
	return ignoreNotFound(err)
}
