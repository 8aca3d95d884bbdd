package execution

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/entry"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/render"
	"github.com/cellplane/cellplane/internal/rollout"
)

// requestTimeout is how long a member may take for one request before it counts as unreachable.
const requestTimeout = 15 * time.Second

// conflictError means that an object of the same name exists and is not ours.
type conflictError struct{ object cell.Object }

// Error says what to do about it.
func (e *conflictError) Error() string {
	return fmt.Sprintf("%s exists already and is not managed by the federation; remove it, or set conflictResolution to Overwrite to take it over", &e.object)
}

// outdatedError means that the object carries a newer command of its rollout than the Work: another engine was faster, or the cell was restored from a backup.
type outdatedError struct {
	object       cell.Object
	live, wanted int64
}

// Error says which command is newer.
func (e *outdatedError) Error() string {
	return fmt.Sprintf("%s has command %d of its rollout, which is newer than command %d of the Work", &e.object, e.live, e.wanted)
}

// checkOrder refuses to replace an object by one of an earlier command for the same template.
func checkOrder(object *cell.Object, live, desired *unstructured.Unstructured) error {
	if live.GetAnnotations()[names.RolloutCommandAnnotation] == "" ||
		live.GetAnnotations()[names.TemplateUIDAnnotation] != desired.GetAnnotations()[names.TemplateUIDAnnotation] {
		return nil
	}
	if has, wants := rollout.SeqOf(live), rollout.SeqOf(desired); has > wants {
		return &outdatedError{object: *object, live: has, wanted: wants}
	}
	return nil
}

// apply creates or updates the objects of a Work and reports whether anything was written.
func (q *memberQueue) apply(ctx context.Context, member *fleet.Member, work *cell.Work) (bool, error) {
	if q.agrees(work) {
		q.e.cell.Manifests.Forget(work.Key) // not needed any more
		return false, nil
	}
	work, manifests, err := q.manifests(ctx, work)
	if err != nil || work == nil {
		return false, err
	}
	var errs []error
	written := false
	for i := range work.Objects {
		wrote, err := q.applyOne(ctx, member, work, &work.Objects[i], manifests[i])
		written = written || wrote
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		q.e.cell.Manifests.Forget(work.Key) // not needed any more
	}
	return written, errors.Join(errs...)
}

// manifests returns the manifests of a Work, and the Work that they are of. It is nil if the Work is gone.
func (q *memberQueue) manifests(ctx context.Context, work *cell.Work) (*cell.Work, [][]byte, error) {
	if manifests, known := q.e.cell.Manifests.Get(work); known {
		return work, manifests, nil
	}
	fresh, err := q.e.cell.ReadWork(ctx, work.Key)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the manifests: %w", cellError{err})
	}
	manifests, known := q.e.cell.Manifests.Get(fresh)
	if !known {
		return nil, nil, fmt.Errorf("reading Work %s: it has changed since", work.Key)
	}
	return fresh, manifests, nil
}

// cellError hides that an error is a connection error: the connection is not the member's.
type cellError struct{ err error }

// Error returns the message.
func (e cellError) Error() string { return e.err.Error() }

// agrees reports whether all objects of a Work are known to agree with their manifests.
func (q *memberQueue) agrees(work *cell.Work) bool {
	for i := range work.Objects {
		observed, _, synced := q.observed(&work.Objects[i])
		if !synced || observed == nil || observed.deleting || observed.Work != work.Key || observed.agreed != work.Objects[i].Fingerprint {
			return false
		}
		if observed.Entry != nil && work.Entries.Ends(observed.Entry, time.Now()) {
			return false
		}
	}
	return true
}

// attempts bounds how often a write is retried because of a conflict.
const attempts = 5

func (q *memberQueue) applyOne(ctx context.Context, member *fleet.Member, work *cell.Work, object *cell.Object, manifest []byte) (bool, error) {
	if object.Broken != "" {
		return false, fmt.Errorf("a manifest is invalid: %s", object.Broken)
	}
	desired, err := q.manifest(work, manifest)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client, served, err := member.Resource(ctx, object.GroupVersionKind, object.Namespace)
	if err != nil {
		return false, err
	}
	c := q.watch(object.GroupVersionKind)
	c.servedAs(served)
	observed, _, synced := c.get(object.Key)
	exists := observed != nil || !synced
	for range attempts {
		var written bool
		if !exists {
			written, err = q.create(ctx, member, client, c, object, desired)
		} else {
			written, err = q.update(ctx, client, c, work, object, desired)
		}
		switch {
		case err == nil:
			return written, nil
		case apierrors.IsAlreadyExists(err), !exists && refused(err) && isThere(ctx, client, object):
			exists = true
		case apierrors.IsNotFound(err) && exists:
			exists = false
		case apierrors.IsConflict(err):
			// Perhaps another engine wrote the object, from a newer Work.
			if fresh, readErr := q.e.cell.ReadWork(ctx, work.Key); readErr != nil || fresh.Digest != work.Digest {
				return false, fmt.Errorf("reading Work %s: it has changed since", work.Key)
			}
		default:
			return false, err
		}
	}
	return false, err
}

// refused reports whether an API server has refused an object for its content. It may do so before it looks at the name: the
// node port of a Service is allocated first, and a quota or a webhook is asked first.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

func isThere(ctx context.Context, client dynamic.ResourceInterface, object *cell.Object) bool {
	_, err := client.Get(ctx, object.Name, metav1.GetOptions{})
	return err == nil
}

// manifest decodes a manifest. A manifest that the binding controller did not write gets our labels and annotations.
func (q *memberQueue) manifest(work *cell.Work, raw []byte) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("reading a manifest: %w", err)
	}
	if obj.GetAnnotations()[merge.FingerprintAnnotation] != "" && (q.e.own != nil || obj.GetLabels()[names.CellLabel] == q.e.cell.Name) {
		return obj, nil
	}
	return merge.Stamp(obj, merge.Marks{WorkNamespace: work.Namespace, WorkName: work.Name, WorkID: work.ID, Cell: q.e.cell.Name}), nil
}

func (q *memberQueue) create(ctx context.Context, member *fleet.Member, client dynamic.ResourceInterface, c *collection, object *cell.Object, desired *unstructured.Unstructured) (bool, error) {
	created, err := client.Create(ctx, desired, metav1.CreateOptions{FieldManager: merge.FieldManager})
	if namespaceMissing(err, object) {
		if err := q.ensureNamespace(ctx, member, object.Namespace); err != nil {
			return false, err
		}
		created, err = client.Create(ctx, desired, metav1.CreateOptions{FieldManager: merge.FieldManager})
	}
	if err != nil {
		countCreate(object, q.cluster, err)
		return false, describe("creating", object, err)
	}
	countCreate(object, q.cluster, nil)
	c.wrote(created, object.Fingerprint)
	return true, nil
}

// namespaceMissing reports whether a creation failed because the namespace does not exist.
func namespaceMissing(err error, object *cell.Object) bool {
	var status apierrors.APIStatus
	if object.Namespace == "" || !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces"
}

// ensureNamespace creates a namespace that the hub has not propagated yet. The hub takes it over when it does.
func (q *memberQueue) ensureNamespace(ctx context.Context, member *fleet.Member, name string) error {
	client, _, err := member.Resource(ctx, corev1.SchemeGroupVersion.WithKind("Namespace"), "")
	if err != nil {
		return err
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name, "labels": map[string]any{names.ManagedLabel: names.ManagedValue}},
	}}
	if _, err := client.Create(ctx, namespace, metav1.CreateOptions{FieldManager: merge.FieldManager}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return nil
}

// update merges the manifest into the live object.
func (q *memberQueue) update(ctx context.Context, client dynamic.ResourceInterface, c *collection, work *cell.Work, object *cell.Object, desired *unstructured.Unstructured) (bool, error) {
	live, err := client.Get(ctx, object.Name, metav1.GetOptions{})
	if err != nil {
		return false, describe("reading", object, err)
	}
	switch {
	case live.GetDeletionTimestamp() != nil:
		return false, fmt.Errorf("%s is being deleted in the cluster; it is recreated once it is gone", object)
	case mayUpdate(live, desired):
	case object.Kind == "Namespace" && object.Group == "":
		return false, nil // it exists, which is enough; it is not ours to change or delete
	default:
		return false, &conflictError{*object}
	}
	if err := checkOrder(object, live, desired); err != nil {
		return false, err
	}
	if live, err = q.closeEnded(ctx, client, work, object, live); err != nil {
		return false, err
	}
	merged, changed, err := q.merge(ctx, live, desired)
	if err != nil {
		return false, err
	}
	if !changed {
		c.wrote(live, object.Fingerprint)
		return false, nil
	}
	if open, is := entry.Of(live.GetAnnotations()); is {
		q.followOpen(work, object, live)
		return false, &openError{Opened{Object: *object, Entry: open}}
	}
	if err := q.openWritten(ctx, client, c, work, object, change{live: live, desired: desired, merged: merged}); err != nil {
		return false, err
	}
	// The version that was read guards the write: an entry opened in between is seen.
	updated, err := client.Update(ctx, merged, metav1.UpdateOptions{FieldManager: merge.FieldManager})
	if err != nil {
		countUpdate(object, q.cluster, err)
		return false, describe("updating", object, err)
	}
	countUpdate(object, q.cluster, nil)
	c.wrote(updated, object.Fingerprint)
	return true, nil
}

// merge returns the live object with the manifest merged into it, and whether that changes it.
func (q *memberQueue) merge(ctx context.Context, live, desired *unstructured.Unstructured) (*unstructured.Unstructured, bool, error) {
	merger, err := q.e.schemas.merger(ctx, desired.GroupVersionKind())
	if err != nil {
		return nil, false, err
	}
	return render.Merge(ctx, q.e.interpreter, merger, live, desired)
}

// mayUpdate reports whether an object is ours, or may be taken over.
func mayUpdate(live, desired *unstructured.Unstructured) bool {
	if desired.GetAnnotations()[names.ConflictResolutionAnnotation] == "overwrite" && !isNamespace(desired) {
		return true
	}
	return ours(live.GetLabels(), desired.GetLabels())
}

func isNamespace(obj *unstructured.Unstructured) bool {
	return obj.GetKind() == "Namespace" && obj.GetAPIVersion() == "v1"
}

// ours reports whether the labels of an object say that it is the copy of the same template: it has the same Work or,
// after the template moved to another cell, the same binding. An object that was only prepared for us names neither.
func ours(live, desired map[string]string) bool {
	if live[names.ManagedLabel] != names.ManagedValue {
		return false
	}
	id := live[names.WorkPermanentIDLabel]
	return id != "" && id == desired[names.WorkPermanentIDLabel] || sameBinding(live, desired) || id == "" && !namesBinding(live)
}

// bindingLabels are the labels that name a binding.
var bindingLabels = []string{names.ResourceBindingPermanentIDLabel, names.ClusterResourceBindingPermanentIDLabel}

func namesBinding(labels map[string]string) bool {
	return slices.ContainsFunc(bindingLabels, func(label string) bool { return labels[label] != "" })
}

// sameBinding reports whether the labels of two objects name the same binding.
func sameBinding(a, b map[string]string) bool {
	return slices.ContainsFunc(bindingLabels, func(label string) bool { return a[label] != "" && a[label] == b[label] })
}

func describe(doing string, object *cell.Object, err error) error {
	return fmt.Errorf("%s %s: %w", doing, object, err)
}
