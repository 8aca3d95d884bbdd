package execution

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/merge"
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
	for i := range work.Objects {
		if work.Objects[i].Broken != "" {
			continue
		}
		if err := q.removeOne(ctx, member, work, &work.Objects[i]); err != nil {
			return q.memberFailed(member, work, err)
		}
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
	live, err := client.Get(ctx, object.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return describe("reading", object, err)
	}
	labels := live.GetLabels()
	if labels[names.ManagedLabel] != names.ManagedValue || labels[names.WorkPermanentIDLabel] != work.ID {
		return nil // not ours
	}
	if work.Preserve {
		return q.release(ctx, client, live, object)
	}
	uid, background := live.GetUID(), metav1.DeletePropagationBackground
	err = client.Delete(ctx, object.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil // already gone, or recreated by somebody else
	}
	countRequest(deleteRequests, q.cluster, err)
	if err != nil {
		return describe("deleting", object, err)
	}
	return nil
}

// release removes our labels and annotations from an object that stays.
func (q *memberQueue) release(ctx context.Context, client dynamic.ResourceInterface, live *unstructured.Unstructured, object *cell.Object) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": live.GetResourceVersion(),
		"labels":          withoutMarks(live.GetLabels()),
		"annotations":     withoutMarks(live.GetAnnotations()),
	}})
	if err != nil {
		return fmt.Errorf("releasing %s %s: %w", object.Kind, object.Key, err)
	}
	_, err = client.Patch(ctx, object.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: merge.FieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return describe("releasing", object, err)
	}
	return nil
}

// withoutMarks returns a patch that removes the keys that belong to the federation.
func withoutMarks(entries map[string]string) map[string]any {
	patch := map[string]any{}
	for key := range entries {
		domain, _, _ := strings.Cut(key, "/")
		if domain == "karmada.io" || strings.HasSuffix(domain, ".karmada.io") || domain == "cellplane.io" || strings.HasSuffix(domain, ".cellplane.io") {
			patch[key] = nil
		}
	}
	return patch
}
