// Command adjust changes generated CustomResourceDefinitions where the types of Kubernetes that they contain do not say what Karmada accepts, and
// controller-gen cannot override them.
//
// Cluster and ResourceRegistry are served by an aggregated API server in Karmada, which does not validate conditions. The schema of metav1.Condition
// does. A webhook of Karmada validates the spec of a MultiClusterIngress as API servers do that of an Ingress. The schema of its type does not.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// adjustments change the schema of a kind.
var adjustments = map[string]func(kind map[string]any) error{
	"cluster.karmada.io_clusters.yaml":                 relaxConditions,
	"search.karmada.io_resourceregistries.yaml":        relaxConditions,
	"networking.karmada.io_multiclusteringresses.yaml": validateIngress,
}

func main() {
	for file, change := range adjustments {
		if err := adjust(filepath.Join(os.Args[1], file), change); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func adjust(path string, change func(kind map[string]any) error) error {
	content, err := os.ReadFile(path) // #nosec G304 -- the generator's own output
	if err != nil {
		return err
	}
	var definition map[string]any
	if err := yaml.Unmarshal(content, &definition); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	versions, _ := at(definition, "spec")["versions"].([]any)
	if len(versions) == 0 {
		return fmt.Errorf("%s has no versions", path)
	}
	for _, version := range versions {
		if err := change(at(version, "schema", "openAPIV3Schema")); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	adjusted, err := yaml.Marshal(definition)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte("---\n"), bytes.TrimPrefix(adjusted, []byte("---\n"))...), 0o600)
}

// relaxConditions requires nothing of a condition but the type, which is the key of the list.
func relaxConditions(kind map[string]any) error {
	item := at(kind, "properties", "status", "properties", "conditions", "items")
	properties := at(item, "properties")
	if len(properties) == 0 {
		return errors.New("status.conditions has no properties")
	}
	item["required"] = []any{"type"}
	for name := range properties {
		property := at(properties, name)
		for _, constraint := range []string{"enum", "pattern", "minLength", "maxLength", "minimum"} {
			delete(property, constraint)
		}
	}
	at(properties, "lastTransitionTime")["nullable"] = true
	at(properties, "reason")["description"] = "reason is a programmatic identifier of the reason for the condition's last transition. It may be empty."
	return nil
}

// validateIngress validates the paths and backends of an ingress, as API servers do.
func validateIngress(kind map[string]any) error {
	spec := at(kind, "properties", "spec", "properties")
	paths := at(spec, "rules", "items", "properties", "http", "properties", "paths")
	path := at(paths, "items")
	if len(path) == 0 || len(at(spec, "defaultBackend")) == 0 {
		return errors.New("spec has no paths or no default backend")
	}
	paths["minItems"] = 1
	at(path, "properties", "pathType")["enum"] = []any{"Exact", "ImplementationSpecific", "Prefix"}
	at(path, "properties", "path")["pattern"] = "^(/|$)"
	path["anyOf"] = []any{
		map[string]any{"properties": map[string]any{"pathType": map[string]any{"enum": []any{"ImplementationSpecific"}}}},
		map[string]any{"required": []any{"path"}, "properties": map[string]any{"path": map[string]any{
			"pattern": "^/", "not": map[string]any{"pattern": `//|/\.\.?(/|$)|%2[fF]`},
		}}},
	}
	either := func(one, other string) []any {
		return []any{map[string]any{"required": []any{one}}, map[string]any{"required": []any{other}}}
	}
	backend := at(path, "properties", "backend")
	backend["oneOf"] = either("resource", "service") // a rule says so of the default backend
	for _, backend := range []map[string]any{backend, at(spec, "defaultBackend")} {
		service := at(backend, "properties", "service")
		service["required"] = []any{"name", "port"}
		port := at(service, "properties", "port")
		port["oneOf"] = either("name", "number")
		number := at(port, "properties", "number")
		number["minimum"], number["maximum"] = 1, 65535
	}
	return nil
}

// at returns the map at a path, nil if there is none.
func at(value any, path ...string) map[string]any {
	fields, _ := value.(map[string]any)
	for _, name := range path {
		fields, _ = fields[name].(map[string]any)
	}
	return fields
}
