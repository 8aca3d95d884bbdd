package render

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/rights"
)

// Retainer keeps the fields of an object that belong to its member.
type Retainer interface {
	Retain(ctx context.Context, desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error)
}

// Merge returns the live object with a stamped manifest merged into it, and whether that changes it.
func Merge(ctx context.Context, interpreter Retainer, merger *merge.Merger, live, desired *unstructured.Unstructured) (*unstructured.Unstructured, bool, error) {
	retained, err := interpreter.Retain(ctx, desired, live)
	if err != nil {
		return nil, false, err
	}
	if err := rights.Check("retention in its interpreter", retained, desired, live); err != nil {
		return nil, false, err
	}
	return merger.Update(live, retained)
}
