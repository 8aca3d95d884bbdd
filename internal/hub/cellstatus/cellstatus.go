// Package cellstatus writes the status of Cells. Several controllers of the hub manager do so, and each owns a part: it applies its part
// under a name of its own, so that none removes what another has written.
package cellstatus

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// Conditions is a part of a status that has only conditions.
type Conditions struct {
	Conditions []metav1.Condition `json:"conditions"`
}

// Of returns the part with the condition of a type among others; it must be there.
func Of(conditions []metav1.Condition, kind string) Conditions {
	for i := range conditions {
		if conditions[i].Type == kind {
			return Conditions{conditions[i : i+1]}
		}
	}
	panic("cellstatus: there is no condition " + kind)
}

// Apply writes the part of a writer, whatever version the Cell has, unless it has gone. API servers do not compare the UID in an apply of a
// status: a Cell of the same name that was made since gets the part, too, until the writer looks again.
func Apply(ctx context.Context, hub client.Client, cell *cellplanev1alpha1.Cell, writer string, part any) error {
	_, err := apply(ctx, hub, cell, "", writer, part)
	return client.IgnoreNotFound(err)
}

// ApplyTo writes the part of a writer if the Cell still has the version that was read. The cell gets the version that was written.
func ApplyTo(ctx context.Context, hub client.Client, cell *cellplanev1alpha1.Cell, writer string, part any) error {
	version, err := apply(ctx, hub, cell, cell.ResourceVersion, writer, part)
	if err == nil {
		cell.ResourceVersion = version
	}
	return err
}

func apply(ctx context.Context, hub client.Client, cell *cellplanev1alpha1.Cell, version, writer string, part any) (written string, err error) {
	metadata := map[string]any{"name": cell.Name}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": cellplanev1alpha1.GroupVersion.String(), "kind": "Cell", "metadata": metadata, "status": part,
	})
	if err != nil {
		return "", err
	}
	target := &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: cell.Name}}
	err = hub.Status().Patch(ctx, target, client.RawPatch(types.ApplyPatchType, patch), &client.SubResourcePatchOptions{
		PatchOptions: client.PatchOptions{FieldManager: writer, Force: ptr.To(true)},
	})
	return target.ResourceVersion, err
}
