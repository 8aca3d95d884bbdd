package execution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/entry"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/rollout"
)

// remove deletes the objects of a Work from the member, then removes the Work's finalizer.
func (q *memberQueue) remove(ctx context.Context, member *fleet.Member, problem error, work *cell.Work) error {
	if !slices.Contains(work.Finalizers, names.ExecutionFinalizer) {
		return nil
	}
	if problem != nil {
		if q.isLeaving() {
			return q.e.cell.ReleaseWork(ctx, work) // the member will never be reachable again
		}
		q.failed(work, problem) // a member that comes back enqueues its Works
		return nil
	}
	var open []error
	for i := range work.Objects {
		if work.Objects[i].Broken != "" {
			continue
		}
		err := q.removeOne(ctx, member, work, &work.Objects[i])
		switch {
		case err == nil:
		case isOpen(err):
			open = append(open, err)
		default:
			return q.memberFailed(member, work, err)
		}
	}
	if len(open) > 0 && !q.isLeaving() { // what is open in a cluster that leaves the federation stays there as it is
		err := errors.Join(open...)
		after := q.reportEntries(work, err)
		q.heldBack(work, err)
		return again(after)
	}
	return q.e.cell.ReleaseWork(ctx, work)
}

// isLeaving reports whether the cluster is deleted or being deleted.
func (q *memberQueue) isLeaving() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.leaving
}

func (q *memberQueue) removeOne(ctx context.Context, member *fleet.Member, work *cell.Work, object *cell.Object) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client, _, err := member.Resource(ctx, object.GroupVersionKind, object.Namespace)
	if meta.IsNoMatchError(err) {
		return nil // a kind that is not served has no objects
	}
	if err != nil {
		return err
	}
	for range attempts {
		live, err := client.Get(ctx, object.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return describe("reading", object, err)
		}
		if err = q.removeLive(ctx, client, work, object, live); !apierrors.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("removing %s: it changes all the time", object)
}

// removeLive deletes or releases an object as it was read. The version that was read guards it: an entry opened in between is seen.
func (q *memberQueue) removeLive(ctx context.Context, client dynamic.ResourceInterface, work *cell.Work, object *cell.Object, live *unstructured.Unstructured) error {
	if is, err := q.isCopy(ctx, work, live.GetLabels()); !is || err != nil {
		return err
	}
	if open, is := entry.Of(live.GetAnnotations()); is && !work.Entries.Ends(&open, time.Now()) {
		return &openError{Opened{Object: *object, Entry: open}}
	}
	if work.Preserve {
		return q.release(ctx, client, live, object)
	}
	uid, version, background := live.GetUID(), live.GetResourceVersion(), metav1.DeletePropagationBackground
	err := client.Delete(ctx, object.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}, PropagationPolicy: &background})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	if apierrors.IsConflict(err) {
		return err
	}
	countDelete(object, q.cluster, err)
	if err != nil {
		return describe("deleting", object, err)
	}
	return nil
}

// isCopy reports whether an object in the member, as it was read, is the copy of a Work that is being removed. It has the ID of the Work, unless the cluster never got that: the
// Works of a binding that comes to this cell are made again, with other IDs. Then the copy has the ID of a former Work, and that of the binding.
func (q *memberQueue) isCopy(ctx context.Context, work *cell.Work, labels map[string]string) (bool, error) {
	if labels[names.ManagedLabel] != names.ManagedValue {
		return false, nil
	}
	if labels[names.WorkPermanentIDLabel] == work.ID {
		return true, nil
	}
	if !namesBinding(labels) {
		return false, nil
	}
	// The binding may have left this cell meanwhile. Then the copy is that of the next cell, which marks it by an ID of its own. It does so only after the Work here was marked
	// as moved. So the Work is read after the object, whose version guards the removal.
	stored, err := q.e.cell.GetWork(ctx, work.Key)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, cellError{err}
	default:
		return isFormerCopy(work, stored, labels)
	}
}

// isFormerCopy reports whether labels in the member are those of a former Work of the same binding. Stored is the Work as it was read after them.
func isFormerCopy(work *cell.Work, stored *workv1alpha1.Work, labels map[string]string) (bool, error) {
	if stored.UID != work.UID || stored.Labels[names.RebalanceStatusLabel] != "" {
		return false, fmt.Errorf("removing the objects of Work %s: it moves to another cell", work.Key)
	}
	return sameBinding(labels, stored.Labels), nil
}

// release removes our labels, annotations and managed fields from an object that stays.
func (q *memberQueue) release(ctx context.Context, client dynamic.ResourceInterface, live *unstructured.Unstructured, object *cell.Object) error {
	live, err := restore(ctx, client, live, object)
	if err == nil {
		_, err = patchLive(ctx, client, live, map[string]any{"metadata": map[string]any{
			"resourceVersion": live.GetResourceVersion(),
			"labels":          withoutMarks(live.GetLabels()),
			"annotations":     withoutMarks(live.GetAnnotations()),
			"managedFields":   withoutOurs(live.GetManagedFields()),
		}})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return describe("releasing", object, err)
	}
	return nil
}

// restore gives a workload its own bounds back, if it had its part of them until now. That is a write of its own: it makes us a manager of these fields.
func restore(ctx context.Context, client dynamic.ResourceInterface, live *unstructured.Unstructured, object *cell.Object) (*unstructured.Unstructured, error) {
	if live.GetAnnotations()[names.RolloutReplacedAnnotation] == "" {
		return live, nil
	}
	own, err := rollout.Restoring(live, object.Replaced)
	if err != nil || len(own) == 0 {
		return live, err
	}
	return patchLive(ctx, client, live, map[string]any{"metadata": map[string]any{"resourceVersion": live.GetResourceVersion()}, "spec": own})
}

func patchLive(ctx context.Context, client dynamic.ResourceInterface, live *unstructured.Unstructured, change map[string]any) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	return client.Patch(ctx, live.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: merge.FieldManager})
}

// withoutMarks returns a patch that removes the keys that belong to the federation.
func withoutMarks(entries map[string]string) map[string]any {
	patch := map[string]any{}
	for key := range entries {
		if names.IsMark(key) {
			patch[key] = nil
		}
	}
	return patch
}

// withoutOurs returns the managed fields of others. An empty entry tells the API server that there are none.
func withoutOurs(fields []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	fields = slices.DeleteFunc(fields, func(managed metav1.ManagedFieldsEntry) bool {
		return managed.Manager == merge.FieldManager || managed.Manager == entry.FieldManager
	})
	if len(fields) == 0 {
		return []metav1.ManagedFieldsEntry{{}}
	}
	return fields
}
