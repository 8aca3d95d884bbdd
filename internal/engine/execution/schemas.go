package execution

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/merge"
)

// schemas has a merger for every kind. The list keys of built-in kinds are known; those of custom kinds are in their
// CustomResourceDefinitions, which the cell has as well as the members.
type schemas struct {
	cell    *cell.Cell
	builtIn *merge.Merger

	mu     sync.Mutex
	custom map[schema.GroupVersionKind]customMerger
}

type customMerger struct {
	definition cell.DefinitionID
	merger     *merge.Merger
}

func newSchemas(c *cell.Cell) *schemas {
	return &schemas{cell: c, builtIn: merge.New(), custom: map[schema.GroupVersionKind]customMerger{}}
}

// merger returns the merger for a kind as it is defined now.
func (s *schemas) merger(ctx context.Context, gvk schema.GroupVersionKind) (*merge.Merger, error) {
	definition, isCustom := s.cell.DefinitionOf(gvk)
	if !isCustom {
		return s.builtIn, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.custom[gvk]; known.definition == definition {
		return known.merger, nil
	}
	document, err := s.cell.ReadDefinition(ctx, definition)
	if err != nil {
		return nil, cellError{err}
	}
	merger := s.builtIn
	if types, err := merge.TypesOf(document, gvk.Version); err == nil {
		merger = merge.New(types)
	} else {
		// The managed fields of its objects still allow a merge.
		klog.FromContext(ctx).Info("cannot use the schema of a custom kind", "kind", gvk, "err", err)
	}
	s.custom[gvk] = customMerger{definition: definition, merger: merger}
	return merger, nil
}
