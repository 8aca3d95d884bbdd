package merge

import (
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// groupVersionKind is the extension that names the kind of a schema.
const groupVersionKind = "x-kubernetes-group-version-kind"

// TypesOf returns the schema of one version of a custom kind, for [New]. A version without a schema has an empty one.
func TypesOf(definition *apiextensionsv1.CustomResourceDefinition, version string) (managedfields.TypeConverter, error) {
	kind := &spec.Schema{}
	for i := range definition.Spec.Versions {
		v := &definition.Spec.Versions[i]
		if v.Name != version || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		// Both types have the same JSON form.
		raw, err := json.Marshal(v.Schema.OpenAPIV3Schema)
		if err == nil {
			err = json.Unmarshal(raw, kind)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the schema of %s: %w", definition.Name, err)
		}
	}
	// Fields that all objects have need not be in the schema.
	kind.Type = spec.StringOrArray{"object"}
	kind.SetProperty("apiVersion", *spec.StringProperty())
	kind.SetProperty("kind", *spec.StringProperty())
	kind.SetProperty("metadata", spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}})
	kind.AddExtension(groupVersionKind, []any{map[string]any{
		"group": definition.Spec.Group, "version": version, "kind": definition.Spec.Names.Kind,
	}})
	types, err := managedfields.NewTypeConverter(map[string]*spec.Schema{definition.Spec.Names.Kind: kind}, false)
	if err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", definition.Name, err)
	}
	return types, nil
}
