package execution

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/entry"
	"github.com/cellplane/cellplane/internal/merge"
)

// change is what is about to be written to an object: the manifest, and that merged into the object as it was read.
type change struct{ live, desired, merged *unstructured.Unstructured }

// openWritten opens the entry of an object to which a person has written what the change would set back, if the policy says so. It then returns an
// openError. The version that was read guards it.
func (q *memberQueue) openWritten(ctx context.Context, client dynamic.ResourceInterface, c *collection, work *cell.Work, object *cell.Object, now change) error {
	if work.Entries == nil || !work.Entries.Auto {
		return nil
	}
	written := now.live.GetAnnotations()[merge.FingerprintAnnotation]
	if written == "" || !ours(now.live.GetLabels(), now.desired.GetLabels()) {
		return nil // it was not the federation's before
	}
	by, is := entry.Written(now.live, now.merged, entry.Federation{Manager: merge.FieldManager, Unchanged: written == now.desired.GetAnnotations()[merge.FingerprintAnnotation]})
	if !is {
		return nil
	}
	open := entry.Entry{By: by.Manager, Reason: by.Describe()}
	if work.Entries.For > 0 {
		open.Until = time.Now().Add(work.Entries.For).Truncate(time.Second).UTC()
	}
	updated, err := annotate(ctx, client, now.live, open.Annotations())
	if err != nil {
		return describe("opening", object, err)
	}
	klog.FromContext(ctx).Info("a person has written to an object of a member; the federation does not write to it until its entry is closed",
		"cluster", q.cluster, "kind", object.Kind, "object", object.Key, "write", by.Describe())
	c.wrote(updated, "")
	return &openError{Opened{Object: *object, Entry: open}}
}

// closeEnded closes the entry of an object whose time is over, if the policy says so. It returns the object as it is then.
func (q *memberQueue) closeEnded(ctx context.Context, client dynamic.ResourceInterface, work *cell.Work, object *cell.Object, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	open, is := entry.Of(live.GetAnnotations())
	if !is || !work.Entries.Ends(&open, time.Now()) {
		return live, nil
	}
	updated, err := annotate(ctx, client, live, entry.Closed())
	if err != nil {
		return nil, describe("closing", object, err)
	}
	klog.FromContext(ctx).Info("the entry of an object is closed, as its policy says", "cluster", q.cluster, "kind", object.Kind, "object", object.Key, "until", open.Until)
	return updated, nil
}

// annotate opens or closes an entry by a patch of annotations. What people have written before does not open it again.
func annotate(ctx context.Context, client dynamic.ResourceInterface, live *unstructured.Unstructured, annotations map[string]any) (*unstructured.Unstructured, error) {
	maps.Copy(annotations, entry.Seen(live))
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": live.GetResourceVersion(), "annotations": annotations}})
	if err != nil {
		return nil, err
	}
	return client.Patch(ctx, live.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: entry.FieldManager})
}
