package execution

import (
	"context"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/merge"
)

// Definitions are the CustomResourceDefinitions of kinds.
type Definitions interface {
	// DefinitionOf returns the current definition of a kind; ok is false if the kind is not custom.
	DefinitionOf(gvk schema.GroupVersionKind) (id cell.DefinitionID, ok bool)
	ReadDefinition(ctx context.Context, id cell.DefinitionID) (*apiextensionsv1.CustomResourceDefinition, error)
}

// schemas has a merger for every kind. The list keys of built-in kinds are known; those of custom kinds are in their
// CustomResourceDefinitions, which the cell has as well as the members.
type schemas struct {
	Definitions
	builtIn *merge.Merger

	mu     sync.Mutex
	custom map[schema.GroupVersionKind]customMerger
}

type customMerger struct {
	definition cell.DefinitionID
	merger     *merge.Merger
}

func newSchemas(definitions Definitions) *schemas {
	return &schemas{Definitions: definitions, builtIn: merge.New(), custom: map[schema.GroupVersionKind]customMerger{}}
}

// merger returns the merger for a kind as it is defined now.
func (s *schemas) merger(ctx context.Context, gvk schema.GroupVersionKind) (*merge.Merger, error) {
	definition, isCustom := s.DefinitionOf(gvk)
	if !isCustom {
		return s.builtIn, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.custom[gvk]; known.definition == definition {
		return known.merger, nil
	}
	document, err := s.ReadDefinition(ctx, definition)
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
