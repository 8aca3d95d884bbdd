package override

import (
	"fmt"
	"slices"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// containersOf returns the containers of the kinds whose pod templates overriders support.
func containersOf(obj map[string]any) []map[string]any {
	spec, _ := obj["spec"].(map[string]any)
	switch obj["kind"] {
	case "Pod":
	case "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job":
		template, _ := spec["template"].(map[string]any)
		spec, _ = template["spec"].(map[string]any)
	default:
		return nil
	}
	list, _ := spec["containers"].([]any)
	containers := make([]map[string]any, 0, len(list))
	for _, item := range list {
		if container, ok := item.(map[string]any); ok {
			containers = append(containers, container)
		}
	}
	return containers
}

// compileWords compiles a change of the command or the arguments of one container.
func compileWords(field string, spec *policyv1alpha1.CommandArgsOverrider) (func(map[string]any) error, error) {
	var change func(words []any) []any
	switch spec.Operator {
	case policyv1alpha1.OverriderOpAdd:
		change = func(words []any) []any {
			words = slices.Clip(words)
			for _, word := range spec.Value {
				words = append(words, word)
			}
			return words
		}
	case policyv1alpha1.OverriderOpRemove:
		change = func(words []any) []any {
			return slices.DeleteFunc(words, func(word any) bool {
				text, ok := word.(string)
				return ok && slices.Contains(spec.Value, text)
			})
		}
	default:
		return nil, fmt.Errorf("unknown operator %q, use add or remove", spec.Operator)
	}
	return func(obj map[string]any) error {
		for _, container := range containersOf(obj) {
			if container["name"] != spec.ContainerName {
				continue
			}
			words, _ := container[field].([]any)
			if words = change(words); len(words) > 0 {
				container[field] = words
			} else {
				delete(container, field)
			}
		}
		return nil
	}, nil
}

// compileMetadata compiles a change of labels or annotations. Removing or replacing a key that does not exist does
// nothing.
func compileMetadata(field string, spec *policyv1alpha1.LabelAnnotationOverrider) (func(map[string]any) error, error) {
	switch spec.Operator {
	case policyv1alpha1.OverriderOpAdd, policyv1alpha1.OverriderOpReplace, policyv1alpha1.OverriderOpRemove:
	default:
		return nil, fmt.Errorf("unknown operator %q, use add, remove or replace", spec.Operator)
	}
	return func(obj map[string]any) error {
		metadata, ok := obj["metadata"].(map[string]any)
		if !ok {
			return fmt.Errorf("the object has no metadata")
		}
		entries, _ := metadata[field].(map[string]any)
		for key, value := range spec.Value {
			_, exists := entries[key]
			switch {
			case spec.Operator == policyv1alpha1.OverriderOpAdd:
				if entries == nil {
					entries = map[string]any{}
					metadata[field] = entries
				}
				entries[key] = value
			case !exists:
			case spec.Operator == policyv1alpha1.OverriderOpReplace:
				entries[key] = value
			default:
				delete(entries, key)
			}
		}
		return nil
	}, nil
}
