package execution

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/merge"
)

// requestTimeout is how long a member may take for one request before it counts as not answering.
const requestTimeout = 15 * time.Second

// conflictError says that an object that is not ours is in the way.
type conflictError struct{ object cell.Object }

// Error tells what to do about it.
func (e *conflictError) Error() string {
	return fmt.Sprintf("%s %s exists already and is not managed by the federation; remove it, or set conflictResolution to Overwrite to take it over",
		e.object.Kind, e.object.Key)
}

// apply brings the objects of a Work up to date and reports whether anything had to be written.
func (l *lane) apply(ctx context.Context, member *fleet.Member, work *cell.Work) (bool, error) {
	if l.agrees(work) {
		l.e.cell.Manifests.Forget(work.Key) // nobody will ask for them
		return false, nil
	}
	manifests, known := l.e.cell.Manifests.Get(work)
	if !known {
		fresh, err := l.e.cell.ReadWork(ctx, work.Key)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("reading the manifests: %w", cellError{err})
		}
		work = fresh
		if manifests, known = l.e.cell.Manifests.Get(work); !known {
			return false, fmt.Errorf("the Work %s has changed", work.Key)
		}
	}
	var errs []error
	written := false
	for i := range work.Objects {
		done, err := l.applyOne(ctx, member, work, &work.Objects[i], manifests[i])
		written = written || done
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		l.e.cell.Manifests.Forget(work.Key) // they have served their purpose
	}
	return written, errors.Join(errs...)
}

// cellError hides that an error is one of a connection: it is not the member's.
type cellError struct{ err error }

// Error returns the message.
func (e cellError) Error() string { return e.err.Error() }

// agrees tells whether all objects of a Work are known to be as they should be.
func (l *lane) agrees(work *cell.Work) bool {
	for i := range work.Objects {
		observed, _, synced := l.observed(&work.Objects[i])
		if !synced || observed == nil || observed.deleting || observed.Work != work.Key || observed.agreed != work.Objects[i].Fingerprint {
			return false
		}
	}
	return true
}

// attempts bounds how often a write is repeated because the object changed in between.
const attempts = 5

func (l *lane) applyOne(ctx context.Context, member *fleet.Member, work *cell.Work, object *cell.Object, manifest []byte) (bool, error) {
	if object.Broken != "" {
		return false, fmt.Errorf("a manifest cannot be read: %s", object.Broken)
	}
	desired, err := l.manifest(work, manifest)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client, _, err := member.Resource(ctx, object.GroupVersionKind, object.Namespace)
	if err != nil {
		return false, err
	}
	c := l.follow(object.GroupVersionKind)
	observed, _, synced := c.get(object.Key)
	exists := observed != nil || !synced
	for range attempts {
		var done bool
		if !exists {
			done, err = l.create(ctx, member, client, c, object, desired)
		} else {
			done, err = l.update(ctx, client, c, object, desired)
		}
		switch {
		case err == nil:
			return done, nil
		case apierrors.IsAlreadyExists(err):
			exists = true
		case apierrors.IsNotFound(err) && exists:
			exists = false
		case apierrors.IsConflict(err):
			// Somebody wrote in between: perhaps another engine, which has seen a newer Work.
			if fresh, readErr := l.e.cell.ReadWork(ctx, work.Key); readErr != nil || fresh.Digest != work.Digest {
				return false, fmt.Errorf("the Work %s has changed meanwhile", work.Key)
			}
		default:
			return false, err
		}
	}
	return false, err
}

// manifest decodes a manifest. One that we did not write ourselves gets our marks.
func (l *lane) manifest(work *cell.Work, raw []byte) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("reading a manifest: %w", err)
	}
	if obj.GetAnnotations()[merge.FingerprintAnnotation] != "" && obj.GetLabels()[names.CellLabel] == l.e.cell.Name {
		return obj, nil
	}
	return merge.Stamp(obj, merge.Marks{WorkNamespace: work.Namespace, WorkName: work.Name, WorkID: work.ID, Cell: l.e.cell.Name}), nil
}

func (l *lane) create(ctx context.Context, member *fleet.Member, client dynamic.ResourceInterface, c *collection, object *cell.Object, desired *unstructured.Unstructured) (bool, error) {
	created, err := client.Create(ctx, desired, metav1.CreateOptions{FieldManager: merge.FieldManager})
	if namespaceMissing(err, object) {
		if err := l.ensureNamespace(ctx, member, object.Namespace); err != nil {
			return false, err
		}
		created, err = client.Create(ctx, desired, metav1.CreateOptions{FieldManager: merge.FieldManager})
	}
	if err != nil {
		countRequest(createRequests, l.cluster, err)
		return false, describe("creating", object, err)
	}
	countRequest(createRequests, l.cluster, nil)
	c.wrote(created, object.Fingerprint)
	return true, nil
}

// namespaceMissing tells whether a creation failed for want of the namespace.
func namespaceMissing(err error, object *cell.Object) bool {
	var status apierrors.APIStatus
	if object.Namespace == "" || !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces"
}

// ensureNamespace creates a namespace that the hub has not sent yet; it takes it over as soon as it does.
func (l *lane) ensureNamespace(ctx context.Context, member *fleet.Member, name string) error {
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

// update merges the manifest into the object as it is.
func (l *lane) update(ctx context.Context, client dynamic.ResourceInterface, c *collection, object *cell.Object, desired *unstructured.Unstructured) (bool, error) {
	live, err := client.Get(ctx, object.Name, metav1.GetOptions{})
	if err != nil {
		return false, describe("reading", object, err)
	}
	switch {
	case live.GetDeletionTimestamp() != nil:
		return false, fmt.Errorf("%s %s is being deleted in the cluster; it is made again once it is gone", object.Kind, object.Key)
	case mayUpdate(live, desired):
	case object.Kind == "Namespace" && object.Group == "":
		return false, nil // it is there, which is all that is needed, and it is not ours to change or delete
	default:
		return false, &conflictError{*object}
	}
	merged, changed, err := l.merge(ctx, live, desired)
	if err != nil {
		return false, err
	}
	if !changed {
		c.wrote(live, object.Fingerprint)
		return false, nil
	}
	updated, err := client.Update(ctx, merged, metav1.UpdateOptions{FieldManager: merge.FieldManager})
	if err != nil {
		countRequest(updateRequests, l.cluster, err)
		return false, describe("updating", object, err)
	}
	countRequest(updateRequests, l.cluster, nil)
	c.wrote(updated, object.Fingerprint)
	return true, nil
}

// merge returns the live object with the manifest merged into it, and whether that changes it.
func (l *lane) merge(ctx context.Context, live, desired *unstructured.Unstructured) (*unstructured.Unstructured, bool, error) {
	retained, err := l.e.interpreter.Retain(ctx, desired, live)
	if err != nil {
		return nil, false, err
	}
	merger, err := l.e.schemas.merger(ctx, desired.GroupVersionKind())
	if err != nil {
		return nil, false, err
	}
	return merger.Update(live, retained)
}

// mayUpdate tells whether an object is ours, or may become so.
func mayUpdate(live, desired *unstructured.Unstructured) bool {
	if desired.GetAnnotations()[names.ConflictResolutionAnnotation] == "overwrite" && !isNamespace(desired) {
		return true
	}
	return ours(live.GetLabels(), desired.GetLabels())
}

func isNamespace(obj *unstructured.Unstructured) bool {
	return obj.GetKind() == "Namespace" && obj.GetAPIVersion() == "v1"
}

// ours tells whether the labels of an object say that it is the copy of the same template: its Work is the same, or,
// after the template moved to another cell, its binding. One that was only prepared for us names neither.
func ours(live, desired map[string]string) bool {
	if live[names.ManagedLabel] != names.ManagedValue {
		return false
	}
	named := false
	for _, label := range []string{names.WorkPermanentIDLabel, names.ResourceBindingPermanentIDLabel, names.ClusterResourceBindingPermanentIDLabel} {
		if live[label] == "" {
			continue
		}
		if live[label] == desired[label] {
			return true
		}
		named = true
	}
	return !named
}

func describe(doing string, object *cell.Object, err error) error {
	return fmt.Errorf("%s %s %s: %w", doing, object.Kind, object.Key, err)
}
