// Package binding turns bindings into Works: one for each cluster that a template is placed in, holding the template
// as that cluster should get it.
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

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/override"
)

// Interpreter is what the controller asks about templates.
type Interpreter interface {
	Prune(template *unstructured.Unstructured) (*unstructured.Unstructured, error)
	ReviseReplica(ctx context.Context, obj *unstructured.Unstructured, replicas int32) (*unstructured.Unstructured, error)
}

// Controller keeps the Works of bindings.
type Controller struct {
	cell        *cell.Cell
	interpreter Interpreter
	recorder    *events.Recorder
	queue       *queue.Queue[cell.Key]
	problems    problems
	overrides   overrides
	set         atomic.Pointer[override.Set]
}

// New returns a controller that watches a cell. Changed is told of bindings of which [Controller.Problem] has something
// new to say.
func New(c *cell.Cell, interpreter Interpreter, recorder *events.Recorder, changed func(binding cell.Key)) *Controller {
	b := &Controller{cell: c, interpreter: interpreter, recorder: recorder, queue: queue.New[cell.Key]("binding"), problems: problems{changed: changed, of: map[cell.Key]string{}}}
	b.overrides.init(b)
	b.subscribe()
	return b
}

// Enqueue has a binding looked at.
func (b *Controller) Enqueue(key cell.Key) { b.queue.AddNow(key) }

// Run works until the context ends.
func (b *Controller) Run(ctx context.Context, workers int) { b.queue.Run(ctx, workers, b.Reconcile) }

// evictionPause is how long a new cluster waits before it is looked at again whether the old one has been cleared.
const evictionPause = 5 * time.Second

// Reconcile brings the Works of a binding up to date.
func (b *Controller) Reconcile(ctx context.Context, key cell.Key) error {
	start := time.Now()
	binding := b.cell.Binding(key)
	switch {
	case binding == nil:
		b.problems.set(key, "")
		return b.deleteWorks(ctx, b.cell.WorksOf(key))
	case binding.Labels[names.RebalanceStatusLabel] != "":
		return nil
	case binding.DeletionTimestamp != nil:
		return b.remove(ctx, binding)
	}

	// 1. What should be where?
	template := b.template(binding)
	if template == nil || template.Frozen {
		return nil // gone, or not ours: the detector decides what becomes of the binding
	}
	targets := targetsOf(&binding.Spec)
	wanted, failures := b.render(ctx, binding, template, targets)

	// 2. Works in clusters that are no longer chosen go, unless they are still being moved out of.
	works := b.cell.WorksOf(key)
	leaving := b.orphans(&binding.Spec, works, targets)
	if err := b.deleteWorks(ctx, leaving); err != nil {
		return b.failed(binding, names.EventCleanupWorkFailed, err)
	}

	// 3. The others are created or brought up to date.
	waits := purging(&binding.Spec, works)
	err := b.write(ctx, template, works, wanted, waits)
	syncDuration.WithLabelValues(result(err)).Observe(time.Since(start).Seconds())
	if err = errors.Join(append(failures, err)...); err != nil {
		return b.failed(binding, names.EventSyncWorkFailed, err)
	}
	b.problems.set(key, "")
	b.recorder.Succeeded(events.OfBinding(binding), "works", names.EventSyncWorkSucceed,
		"the Works of the binding are up to date", false)
	if waits {
		return queue.Later{After: evictionPause}
	}
	return nil
}

func (b *Controller) failed(binding *workv1alpha2.ResourceBinding, reason string, err error) error {
	if !isPassing(err) {
		b.recorder.Failed(events.OfBinding(binding), "works", reason, err.Error())
		b.problems.set(cell.Key{Namespace: binding.Namespace, Name: binding.Name}, describe(err))
	}
	return err
}

// template returns the template of a binding, nil if it is gone or going.
func (b *Controller) template(binding *workv1alpha2.ResourceBinding) *cell.Template {
	template := b.cell.TemplateOf(binding)
	if template == nil || template.Deleting {
		return nil
	}
	return template
}

// targetsOf returns the clusters of a binding: those chosen for it, and those of the bindings that need it.
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

// orphans returns the Works in clusters that are neither chosen nor being moved out of.
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

// purging tells whether a cluster that is left at once still has its Work: until it is gone, no new cluster gets one.
func purging(spec *workv1alpha2.ResourceBindingSpec, works []*cell.Work) bool {
	return slices.ContainsFunc(spec.GracefulEvictionTasks, func(task workv1alpha2.GracefulEvictionTask) bool {
		return task.PurgeMode == policyv1alpha1.PurgeModeDirectly &&
			slices.ContainsFunc(works, func(work *cell.Work) bool { return work.Cluster == task.FromCluster })
	})
}

// write creates and updates Works, all at once. What goes wrong is told in the order of the clusters, so that the same
// failure has the same words.
func (b *Controller) write(ctx context.Context, template *cell.Template, works []*cell.Work, wanted []*workv1alpha1.Work, onlyKnown bool) error {
	var group sync.WaitGroup
	errs := make([]error, len(wanted))
	for n, work := range wanted {
		var now *cell.Work
		if i := slices.IndexFunc(works, func(w *cell.Work) bool { return w.Namespace == work.Namespace && w.Name == work.Name }); i >= 0 {
			now = works[i]
		}
		if now != nil || !onlyKnown {
			group.Go(func() { errs[n] = b.writeOne(ctx, template, now, work) })
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

// writeOne creates or updates a Work and tells of the overrides in it, if they are others than before.
func (b *Controller) writeOne(ctx context.Context, template *cell.Template, now *cell.Work, wanted *workv1alpha1.Work) error {
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
		return err
	}
	cluster, _ := names.ClusterFromExecutionNamespace(wanted.Namespace)
	b.recorder.Succeeded(events.OfTemplate(template), overrideAspect(cluster), names.EventApplyOverridePolicySucceed,
		"override policies applied for cluster "+cluster, written && overrides != 0 && overrides != before)
	return nil
}

func overrideAspect(cluster string) string { return "override:" + cluster }

// update brings a Work up to date, if it is not, and tells whether that took a write.
func (b *Controller) update(ctx context.Context, now *cell.Work, wanted *workv1alpha1.Work) (bool, error) {
	switch {
	case now.Frozen:
		return false, nil
	case now.Deleting:
		return false, queue.Later{After: time.Second} // its end brings us back
	case now.Digest == digestOf(wanted) && slices.Contains(now.Finalizers, names.ExecutionFinalizer):
		return false, nil
	default:
		_, err := b.cell.UpdateWork(ctx, now, wanted)
		return true, err
	}
}

// create creates a Work, and the namespace it is in if that is what is missing.
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

// remove removes the Works of a binding that is deleted, and lets it go when none is left.
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
		return nil // the end of the last one brings us back
	}
	binding = binding.DeepCopy()
	binding.Finalizers = slices.DeleteFunc(binding.Finalizers, func(f string) bool { return f == finalizer })
	_, err := b.cell.UpdateBinding(ctx, binding)
	return ignoreNotFound(err)
}
