// Command relax removes constraints from generated CustomResourceDefinitions that the original API does not have. Cluster and ResourceRegistry are
// served by an aggregated API server in Karmada, which does not validate conditions. The schema of metav1.Condition does, and controller-gen cannot
// override it.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// files are the definitions whose conditions are not validated.
var files = []string{"cluster.karmada.io_clusters.yaml", "search.karmada.io_resourceregistries.yaml"}

func main() {
	for _, file := range files {
		if err := relax(filepath.Join(os.Args[1], file)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func relax(path string) error {
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
		item := at(version, "schema", "openAPIV3Schema", "properties", "status", "properties", "conditions", "items")
		if err := relaxCondition(item); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	relaxed, err := yaml.Marshal(definition)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte("---\n"), bytes.TrimPrefix(relaxed, []byte("---\n"))...), 0o600)
}

// relaxCondition requires nothing but the type, which is the key of the list.
func relaxCondition(item map[string]any) error {
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

// at returns the map at a path, nil if there is none.
func at(value any, path ...string) map[string]any {
	fields, _ := value.(map[string]any)
	for _, name := range path {
		fields, _ = fields[name].(map[string]any)
	}
	return fields
}
