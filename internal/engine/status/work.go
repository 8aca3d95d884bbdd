// Package status writes what is observed in members to the status of Works, bindings and templates.
//
// Bindings and templates do not wait for the status of Works to be written: all three are computed from what the engine
// has in memory.
package status

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/engine/queue"
)

// Reasons and messages of conditions of Works, as users know them.
const (
	appliedReason     = "AppliedSuccessful"
	appliedMessage    = "Manifest has been successfully applied"
	dispatchingReason = "Dispatching"
	dispatchingNote   = "Work is being dispatched to member clusters."
	suspendedReason   = "SuspendDispatching"
	suspendedNote     = "Work dispatching is in a suspended state."
)

// Works reconciles the status of Works.
type Works struct {
	cell     *cell.Cell
	report   func(*cell.Work) execution.Report
	recorder *events.Recorder
	queue    *queue.Queue[cell.Key]
	debounce *debounce[cell.Key]
	now      func() time.Time
}

// NewWorks returns a controller for the status of Works. Report returns what is known about a Work.
func NewWorks(c *cell.Cell, report func(*cell.Work) execution.Report, recorder *events.Recorder) *Works {
	timing := workTiming
	if c.Cluster != "" {
		timing = bindingTiming // in an agent: bindings and templates get their status from here
	}
	return &Works{cell: c, report: report, recorder: recorder, queue: queue.New[cell.Key]("work-status"), debounce: newDebounce[cell.Key](timing), now: time.Now}
}

// Changed is called when something has changed that the status of a Work depends on.
func (w *Works) Changed(key cell.Key) {
	w.debounce.changed(key, w.now())
	w.queue.AddAfter(key, collectFor)
}

// Run reconciles until the context ends.
func (w *Works) Run(ctx context.Context, workers int) { w.queue.Run(ctx, workers, w.Reconcile) }

// Reconcile updates the status of a Work.
func (w *Works) Reconcile(ctx context.Context, key cell.Key) error {
	work := w.cell.Works.Get(key)
	if work == nil || work.Frozen || work.Pulled || work.Deleting && len(work.Finalizers) == 0 {
		w.debounce.written(key)
		return nil
	}

	// 1. Collect what is known about the objects. If that will change in a moment, wait.
	report := w.report(work)
	var open open
	open.add(work.Cluster, report.Open, w.now())
	if !report.Settled && !report.Failed() && !suspensionChanged(work) && !open.news(work.Conditions.List(), w.now()) && !comparisonChanged(work, &report) {
		if wait := w.debounce.wait(key, w.now()); wait > 0 {
			return queue.Later{After: wait}
		}
	}

	// 2. Compute the status. What is not known about the objects stays as it was last written.
	status := workv1alpha1.WorkStatus{Conditions: w.conditions(work, &report)}
	open.set(&status.Conditions, w.now())
	setComparison(&status.Conditions, work, &report, w.now())
	manifests, known := manifestStatuses(work, &report)
	status.ManifestStatuses = manifests
	conditionsChanged := conditionsDiffer(work.Conditions.List(), status.Conditions)
	if !known && conditionsChanged {
		before, err := w.cell.ReadWorkStatus(ctx, key)
		if err != nil {
			return ignoreNotFound(err)
		}
		status.ManifestStatuses = before.ManifestStatuses
	}

	// 3. Write it, if it has changed.
	if conditionsChanged || known && work.StatusDigest != cell.StatusDigest(status.ManifestStatuses) {
		if _, err := w.cell.UpdateWorkStatus(ctx, work, &status); err != nil {
			return ignoreNotFound(err)
		}
		w.reportDispatching(work, status.Conditions)
	}
	w.debounce.written(key)
	return nil
}

// reportDispatching records that dispatching was suspended or resumed. That a new Work is dispatched is one of the successes.
func (w *Works) reportDispatching(work *cell.Work, conditions []metav1.Condition) {
	before, now := work.Conditions.Find(names.WorkDispatching), meta.FindStatusCondition(conditions, names.WorkDispatching)
	if now == nil || before != nil && before.Status == now.Status {
		return
	}
	record := w.recorder.Succeeded
	if before == nil && now.Status == metav1.ConditionTrue {
		record = w.recorder.Also
	}
	record(events.OfWork(work), "dispatching", names.EventWorkDispatching, now.Message, true)
}

// suspensionChanged reports whether dispatching was suspended or resumed and the status does not show it yet.
func suspensionChanged(work *cell.Work) bool {
	dispatching := work.Conditions.Find(names.WorkDispatching)
	return work.Suspended && (dispatching == nil || dispatching.Status == metav1.ConditionTrue) ||
		!work.Suspended && dispatching != nil && dispatching.Status == metav1.ConditionFalse
}

// conditions returns the conditions of a Work. Those that are not known keep their last value.
func (w *Works) conditions(work *cell.Work, report *execution.Report) []metav1.Condition {
	conditions := work.Conditions.List()
	generation := int64(0)
	if w.cell.Cluster != "" {
		generation = work.Generation // an engine knows by itself whether it has applied the present one
	}
	set := func(kind string, ok bool, reason, message string) {
		status := metav1.ConditionFalse
		if ok {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&conditions, metav1.Condition{
			Type: kind, Status: status, ObservedGeneration: generation, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(w.now()),
		})
	}
	if work.Suspended {
		set(names.WorkDispatching, false, suspendedReason, suspendedNote)
	} else if !work.Deleting {
		set(names.WorkDispatching, true, dispatchingReason, dispatchingNote)
	}
	switch {
	case !report.Attempted:
	case report.Outcome.Applied:
		set(names.WorkApplied, true, appliedReason, appliedMessage)
	default:
		set(names.WorkApplied, false, report.Outcome.Reason, "Failed to apply all manifests: "+report.Outcome.Message)
	}
	if report.Attempted && !work.Suspended {
		w.setState(set, report)
	}
	return conditions
}

// setState sets the conditions of the objects of a Work. They change only together with the observed objects, so they
// cost no additional write.
func (w *Works) setState(set func(kind string, ok bool, reason, message string), report *execution.Report) {
	if report.Trusted {
		there := true
		for i := range report.Objects {
			there = there && report.Shown(i) != nil
		}
		set(names.WorkAvailable, there, choose(there, "ObjectsExist", "ObjectsMissing"), choose(there, "All objects exist in the member cluster", "Some objects do not exist in the member cluster"))
	}
	moving := report.Outcome.Applied && !report.Settled
	set(names.WorkProgressing, moving, choose(moving, "InProgress", "AtRest"), choose(moving, "The objects are on their way to the desired state", "No further change is expected"))
	failed := report.Failed()
	set(names.WorkDegraded, failed, choose(failed, "ObjectsDiffer", "ObjectsAgree"), choose(failed, "Some objects differ from their manifests", "The objects agree with their manifests"))
}

func choose(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// manifestStatuses returns the observed status of the Work's objects, and whether it is complete.
func manifestStatuses(work *cell.Work, report *execution.Report) ([]workv1alpha1.ManifestStatus, bool) {
	var statuses []workv1alpha1.ManifestStatus
	for i := range report.Objects {
		observed := report.Shown(i)
		if observed == nil {
			if !report.Trusted {
				return nil, false
			}
			continue
		}
		object := &work.Objects[i]
		status := workv1alpha1.ManifestStatus{
			Identifier: workv1alpha1.ResourceIdentifier{
				Ordinal: i, Group: object.Group, Version: object.Version, Kind: object.Kind, Resource: report.Resources[i],
				Namespace: object.Namespace, Name: object.Name,
			},
			Health: observed.Health,
		}
		if observed.Status != nil {
			status.Status = &runtime.RawExtension{Raw: observed.Status}
		}
		statuses = append(statuses, status)
	}
	return statuses, true
}

// conditionsDiffer compares conditions regardless of their times.
func conditionsDiffer(before, now []metav1.Condition) bool {
	if len(before) != len(now) {
		return true
	}
	for i := range now {
		old := meta.FindStatusCondition(before, now[i].Type)
		if old == nil || old.Status != now[i].Status || old.Reason != now[i].Reason || old.Message != now[i].Message || old.ObservedGeneration != now[i].ObservedGeneration {
			return true
		}
	}
	return false
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func isConflict(err error) bool { return apierrors.IsConflict(err) }
