package status

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
	"github.com/cellplane/cellplane/internal/schedule"
)

// Reasons and messages of conditions of bindings, as users know them.
const (
	fullyAppliedReason   = "FullyAppliedSuccess"
	fullyAppliedMessage  = "All works have been successfully applied"
	partlyAppliedReason  = "FullyAppliedFailed"
	partlyAppliedMessage = "Failed to apply all works, see status.aggregatedStatus for details"
	scheduledMessage     = "Binding has been scheduled successfully."
)

// Interpreter aggregates the status of copies.
type Interpreter interface {
	AggregateStatus(ctx context.Context, template *unstructured.Unstructured, items []workv1alpha2.AggregatedStatusItem) (*unstructured.Unstructured, error)
	Conditions(before, aggregated *unstructured.Unstructured, placed kinds.Placed, now time.Time) (*unstructured.Unstructured, error)
}

// Binder tells what the status of a binding says besides the reports about its Works.
type Binder interface {
	// Problem returns why the Works of a binding could not be written, "" if they could.
	Problem(binding cell.Key) string
	// MayHaveCopy reports whether a cluster without a Work may still have the copy of a binding that has left it.
	MayHaveCopy(binding *workv1alpha2.ResourceBinding, cluster string) bool
}

// Bindings reconciles the status of bindings and of their templates.
type Bindings struct {
	cell        *cell.Cell
	interpreter Interpreter
	scheduler   *scheduler.Scheduler
	report      func(*cell.Work) execution.Report
	binder      Binder
	recorder    *events.Recorder
	queue       *queue.Queue[cell.Key]
	debounce    *debounce[cell.Key]
	now         func() time.Time
}

// NewBindings returns a controller for the status of bindings and templates. Report returns what is known about a Work.
func NewBindings(c *cell.Cell, interpreter Interpreter, s *scheduler.Scheduler, report func(*cell.Work) execution.Report, binder Binder, recorder *events.Recorder) *Bindings {
	b := &Bindings{
		cell: c, interpreter: interpreter, scheduler: s, report: report, binder: binder, recorder: recorder,
		queue: queue.New[cell.Key]("binding-status"), debounce: newDebounce[cell.Key](bindingTiming), now: time.Now,
	}
	c.SubscribeBindings(func(key cell.Key, old, now *workv1alpha2.ResourceBinding) {
		if now != nil && (old == nil || old.Generation != now.Generation) {
			b.Changed(key)
		}
	})
	c.Works.Subscribe(func(_ cell.Key, old, now *cell.Work) {
		if now == nil && old.Binding.Name != "" {
			b.Changed(old.Binding)
		}
	})
	return b
}

// Changed is called when something has changed that the status of a binding depends on.
func (b *Bindings) Changed(key cell.Key) {
	b.debounce.changed(key, b.now())
	b.queue.AddAfter(key, collectFor)
}

// Run reconciles until the context ends.
func (b *Bindings) Run(ctx context.Context, workers int) { b.queue.Run(ctx, workers, b.Reconcile) }

// Reconcile updates the status of a binding and of its template.
func (b *Bindings) Reconcile(ctx context.Context, key cell.Key) error {
	binding := b.cell.Binding(key)
	if binding == nil || binding.DeletionTimestamp != nil || binding.Labels[names.RebalanceStatusLabel] != "" {
		b.debounce.written(key)
		return nil
	}

	// 1. Collect what is known about the copies. If that will change in a moment, wait.
	items, open, differing, inProgress := b.aggregate(binding)
	problem := b.binder.Problem(key)
	if inProgress && problem == "" && !open.news(binding.Status.Conditions, b.now()) && !differing.news(binding.Status.Conditions) {
		if wait := b.debounce.wait(key, b.now()); wait > 0 {
			return queue.Later{After: wait}
		}
	}

	// 2. Write the template first: users watch it.
	failure := b.updateTemplate(ctx, binding, items, open)

	// 3. Write the binding, even if the template's status cannot be computed: the status of its copies is known.
	status := b.statusOf(binding, items, problem)
	open.set(&status.Conditions, b.now())
	differing.set(&status.Conditions, b.now())
	if !sameStatus(&binding.Status, status) {
		if _, err := b.cell.UpdateBindingStatus(ctx, binding, status); err != nil {
			return errors.Join(failure, ignoreNotFound(err))
		}
	}
	b.debounce.written(key)
	return failure
}

// aggregate returns the state of the copies, by cluster, which of them are open or differ, and whether a rollout is in progress.
func (b *Bindings) aggregate(binding *workv1alpha2.ResourceBinding) ([]workv1alpha2.AggregatedStatusItem, *open, *differing, bool) {
	works := b.cell.WorksOf(cell.Key{Namespace: binding.Namespace, Name: binding.Name})
	slices.SortFunc(works, func(x, y *cell.Work) int { return strings.Compare(x.Cluster, y.Cluster) })
	items := make([]workv1alpha2.AggregatedStatusItem, 0, len(works))
	settled, failed, open, differing := true, false, &open{}, &differing{}
	for _, work := range works {
		report := b.report(work)
		open.add(work.Cluster, report.Open, b.now())
		open.addReported(work)
		if work.Deleting {
			continue
		}
		differing.add(work, &report)
		settled, failed = settled && report.Settled, failed || report.Failed()
		items = append(items, itemOf(binding, work, &report))
	}
	for i := range binding.Spec.Clusters {
		name := binding.Spec.Clusters[i].Name
		if hasItem(items, name) {
			continue
		}
		settled = false
		if last := lastItem(binding, name); last != nil && !slices.ContainsFunc(works, func(w *cell.Work) bool { return w.Cluster == name }) {
			items = append(items, *last)
		}
	}
	sortItems(items)
	return items, open, differing, !settled && !failed
}

// lastItem returns the last known state of a copy; nil if there is none. It stays until the Work is there, which is made again after a move to another cell: without
// it, the other copies would pass for all.
func lastItem(binding *workv1alpha2.ResourceBinding, cluster string) *workv1alpha2.AggregatedStatusItem {
	i := slices.IndexFunc(binding.Status.AggregatedStatus, func(item workv1alpha2.AggregatedStatusItem) bool { return item.ClusterName == cluster })
	if i < 0 {
		return nil
	}
	return &binding.Status.AggregatedStatus[i]
}

// itemOf returns the state of the copy in one cluster. Fields that are not known now keep their last value.
func itemOf(binding *workv1alpha2.ResourceBinding, work *cell.Work, report *execution.Report) workv1alpha2.AggregatedStatusItem {
	item := workv1alpha2.AggregatedStatusItem{ClusterName: work.Cluster, Health: workv1alpha2.ResourceUnknown}
	if last := lastItem(binding, work.Cluster); last != nil {
		item = *last
	}
	if report.Attempted {
		item.Applied, item.AppliedMessage = report.Outcome.Applied, report.Outcome.Message
	}
	if len(report.Objects) == 0 {
		return item
	}
	switch observed := report.Shown(0); {
	case observed != nil:
		item.Health, item.Status = workv1alpha2.ResourceHealth(observed.Health), nil
		if observed.Status != nil {
			item.Status = &runtime.RawExtension{Raw: observed.Status}
		}
	case report.Trusted:
		item.Health, item.Status = workv1alpha2.ResourceUnknown, nil
	}
	return item
}

// updateTemplate writes the aggregated status of the copies to the template, if it has changed.
func (b *Bindings) updateTemplate(ctx context.Context, binding *workv1alpha2.ResourceBinding, items []workv1alpha2.AggregatedStatusItem, open *open) error {
	template := b.cell.TemplateOf(binding)
	if template == nil || template.Frozen || template.UID != binding.Spec.Resource.UID {
		return nil
	}
	obj, err := template.Object()
	if err != nil {
		return err
	}
	subjects := []*corev1.ObjectReference{events.OfBinding(binding), events.OfTemplate(template)}
	aggregated, err := b.interpreter.AggregateStatus(ctx, obj, items)
	if err == nil {
		aggregated, err = b.interpreter.Conditions(obj, aggregated, placed(binding, items), b.now())
	}
	if err == nil {
		aggregated, err = open.inTemplate(aggregated, b.now())
	}
	changed := false
	if err == nil && aggregated != obj && !apiequality.Semantic.DeepEqual(aggregated.Object["status"], obj.Object["status"]) {
		changed, err = true, b.cell.UpdateTemplateStatus(ctx, template, aggregated)
	}
	if err != nil {
		if !isConflict(err) {
			for _, about := range subjects {
				b.recorder.Failed(about, "aggregate", names.EventAggregateStatusFailed, err.Error())
			}
		}
		return ignoreNotFound(err)
	}
	if changed {
		b.tellProgress(template, obj, aggregated)
	}
	for _, about := range subjects {
		b.recorder.Also(about, "aggregate", names.EventAggregateStatusSucceed, "the status of the copies in the members was aggregated", changed)
	}
	return nil
}

// placed returns the copies of a binding's template.
func placed(binding *workv1alpha2.ResourceBinding, items []workv1alpha2.AggregatedStatusItem) kinds.Placed {
	p := kinds.Placed{Items: items, Divided: binding.Spec.Placement != nil && schedule.Divided(binding.Spec.Placement)}
	for i := range binding.Spec.Clusters {
		if !hasItem(items, binding.Spec.Clusters[i].Name) {
			p.Missing++
		}
	}
	return p
}

func hasItem(items []workv1alpha2.AggregatedStatusItem, cluster string) bool {
	return slices.ContainsFunc(items, func(item workv1alpha2.AggregatedStatusItem) bool { return item.ClusterName == cluster })
}

// statusOf returns the status of a binding.
func (b *Bindings) statusOf(binding *workv1alpha2.ResourceBinding, items []workv1alpha2.AggregatedStatusItem, problem string) *workv1alpha2.ResourceBindingStatus {
	status := binding.Status.DeepCopy()
	status.AggregatedStatus = items
	b.setScheduled(binding, status)
	b.setFullyApplied(binding, status, problem)
	status.AggregatedStatus = b.withLeft(binding, items)
	return status
}

// leftMessage is for clusters that a binding has left.
const leftMessage = "the cluster is no longer chosen, and its copy is being removed"

// withLeft adds clusters that the binding has left and that may still have their copies. Should the binding move to another cell, nothing else there tells that there is a
// copy to remove. What the copy was like is not told: it does not count any more, also if the cluster is chosen again.
func (b *Bindings) withLeft(binding *workv1alpha2.ResourceBinding, items []workv1alpha2.AggregatedStatusItem) []workv1alpha2.AggregatedStatusItem {
	all := slices.Clone(items)
	works := b.cell.WorksOf(cell.Key{Namespace: binding.Namespace, Name: binding.Name})
	for i := range binding.Status.AggregatedStatus {
		name := binding.Status.AggregatedStatus[i].ClusterName
		chosen := slices.ContainsFunc(binding.Spec.Clusters, func(t workv1alpha2.TargetCluster) bool { return t.Name == name })
		there := slices.ContainsFunc(works, func(w *cell.Work) bool { return w.Cluster == name })
		if !chosen && !hasItem(items, name) && (there || b.binder.MayHaveCopy(binding, name)) {
			all = append(all, workv1alpha2.AggregatedStatusItem{ClusterName: name, AppliedMessage: leftMessage, Health: workv1alpha2.ResourceUnknown})
		}
	}
	sortItems(all)
	return all
}

func sortItems(items []workv1alpha2.AggregatedStatusItem) {
	slices.SortFunc(items, func(x, y workv1alpha2.AggregatedStatusItem) int { return strings.Compare(x.ClusterName, y.ClusterName) })
}

func (b *Bindings) setScheduled(binding *workv1alpha2.ResourceBinding, status *workv1alpha2.ResourceBindingStatus) {
	outcome, decided := b.scheduler.Last(cell.Key{Namespace: binding.Namespace, Name: binding.Name})
	if !decided || !b.scheduler.Responsible(binding) {
		return
	}
	condition := metav1.Condition{
		Type: names.BindingScheduled, Status: metav1.ConditionTrue, Reason: names.ReasonSuccess, Message: scheduledMessage,
		LastTransitionTime: metav1.NewTime(b.now()),
	}
	if outcome.Failure != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, outcome.Failure.Reason, outcome.Failure.Message
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	status.SchedulerObservedGeneration = outcome.Generation
	status.SchedulerObservedAffinityName = outcome.Affinity
	if outcome.Failure == nil && (status.LastScheduledTime == nil || outcome.At.Truncate(time.Second).After(status.LastScheduledTime.Time)) {
		at := outcome.At
		if at.IsZero() {
			at = b.now()
		}
		status.LastScheduledTime = &metav1.Time{Time: at.Truncate(time.Second)}
	}
}

// setFullyApplied sets the condition FullyApplied: every chosen cluster has its copy, from a Work that is up to date.
func (b *Bindings) setFullyApplied(binding *workv1alpha2.ResourceBinding, status *workv1alpha2.ResourceBindingStatus, problem string) {
	condition := metav1.Condition{
		Type: names.BindingFullyApplied, Status: metav1.ConditionTrue, Reason: fullyAppliedReason, Message: fullyAppliedMessage,
		LastTransitionTime: metav1.NewTime(b.now()),
	}
	applied := len(status.AggregatedStatus) > 0 && problem == ""
	for i := range binding.Spec.Clusters {
		name := binding.Spec.Clusters[i].Name
		applied = applied && slices.ContainsFunc(status.AggregatedStatus, func(item workv1alpha2.AggregatedStatusItem) bool { return item.ClusterName == name && item.Applied })
	}
	for i := range status.AggregatedStatus {
		applied = applied && status.AggregatedStatus[i].Applied
	}
	if !applied {
		if len(status.AggregatedStatus) == 0 && problem == "" && meta.FindStatusCondition(status.Conditions, names.BindingFullyApplied) == nil {
			return // nothing has been applied yet
		}
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, partlyAppliedReason, partlyAppliedMessage
		if problem != "" {
			condition.Message = problem
		}
	}
	meta.SetStatusCondition(&status.Conditions, condition)
}

// sameStatus compares statuses; raw ones regardless of the order of fields and of white space.
func sameStatus(a, b *workv1alpha2.ResourceBindingStatus) bool {
	if a.SchedulerObservedGeneration != b.SchedulerObservedGeneration || a.SchedulerObservedAffinityName != b.SchedulerObservedAffinityName ||
		!a.LastScheduledTime.Equal(b.LastScheduledTime) || conditionsDiffer(a.Conditions, b.Conditions) || len(a.AggregatedStatus) != len(b.AggregatedStatus) {
		return false
	}
	return slices.EqualFunc(a.AggregatedStatus, b.AggregatedStatus, func(x, y workv1alpha2.AggregatedStatusItem) bool {
		return x.ClusterName == y.ClusterName && x.Applied == y.Applied && x.AppliedMessage == y.AppliedMessage && x.Health == y.Health &&
			sameRaw(x.Status, y.Status)
	})
}

func sameRaw(a, b *runtime.RawExtension) bool {
	if a == nil || b == nil {
		return a == b
	}
	return string(a.Raw) == string(b.Raw) || string(cell.Canonical(a.Raw)) == string(cell.Canonical(b.Raw))
}
