package cell

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// DefinitionID is one version of a CustomResourceDefinition.
type DefinitionID struct {
	Name       string
	UID        types.UID
	Generation int64
}

// DefinitionOf returns the current definition of a kind; ok is false if the kind is not custom or not served here.
func (c *Cell) DefinitionOf(gvk schema.GroupVersionKind) (id DefinitionID, ok bool) {
	kind := c.Templates.Kind(gvk)
	if kind == nil {
		return DefinitionID{}, false
	}
	definition := c.definitions.Get(Key{Name: kind.Resource + "." + gvk.Group})
	if definition == nil {
		return DefinitionID{}, false
	}
	return DefinitionID{Name: definition.Name, UID: definition.UID, Generation: definition.Generation}, true
}

// ReadDefinition reads a definition. Definitions are too large to be cached.
func (c *Cell) ReadDefinition(ctx context.Context, id DefinitionID) (*apiextensionsv1.CustomResourceDefinition, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	err := c.typed[apiextensionsv1.SchemeGroupVersion].Get().Resource("customresourcedefinitions").Name(id.Name).Do(ctx).Into(definition)
	if err != nil {
		return nil, fmt.Errorf("reading the definition %s: %w", id.Name, err)
	}
	return definition, nil
}
