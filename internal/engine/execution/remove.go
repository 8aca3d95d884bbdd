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

// remove removes the objects of a Work that is deleted from the member, and lets the Work go.
func (l *lane) remove(ctx context.Context, member *fleet.Member, problem error, work *cell.Work) error {
	if !slices.Contains(work.Finalizers, names.ExecutionFinalizer) {
		return nil
	}
	if problem != nil {
		if l.isLeaving() {
			return l.e.cell.ReleaseWork(ctx, work) // nobody will ever reach it again
		}
		l.failed(work, problem) // the member's return brings us back
		return nil
	}
	for i := range work.Objects {
		if work.Objects[i].Broken != "" {
			continue
		}
		if err := l.removeOne(ctx, member, work, &work.Objects[i]); err != nil {
			return l.troubled(member, work, err)
		}
	}
	return l.e.cell.ReleaseWork(ctx, work)
}

// isLeaving tells whether the member's cluster is gone or going.
func (l *lane) isLeaving() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaving
}

func (l *lane) removeOne(ctx context.Context, member *fleet.Member, work *cell.Work, object *cell.Object) error {
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
		return nil // somebody else's
	}
	if work.Preserve {
		return l.letGo(ctx, client, live, object)
	}
	uid, background := live.GetUID(), metav1.DeletePropagationBackground
	err = client.Delete(ctx, object.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil // gone, or another one by now
	}
	countRequest(deleteRequests, l.cluster, err)
	if err != nil {
		return describe("deleting", object, err)
	}
	return nil
}

// letGo takes our marks off an object that stays.
func (l *lane) letGo(ctx context.Context, client dynamic.ResourceInterface, live *unstructured.Unstructured, object *cell.Object) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": live.GetResourceVersion(),
		"labels":          withoutMarks(live.GetLabels()),
		"annotations":     withoutMarks(live.GetAnnotations()),
	}})
	if err != nil {
		return fmt.Errorf("letting %s %s go: %w", object.Kind, object.Key, err)
	}
	_, err = client.Patch(ctx, object.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: merge.FieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return describe("letting go of", object, err)
	}
	return nil
}

// withoutMarks returns a patch that removes the keys by which the federation marks objects.
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
