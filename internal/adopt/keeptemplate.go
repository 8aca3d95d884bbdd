package adopt

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// KeepInTemplate returns a JSON patch of the template with which the federation wants what an object of a member is like now, in all clusters, and the
// fields it is about. Manifest and merged are as for [Keep]. It refuses fields that the manifest has from an override or from the division of replicas:
// the template does not decide about them. What the template has already is left out: the manifest may be older than the template.
func KeepInTemplate(interpreter Interpreter, template, manifest, merged, live *unstructured.Unstructured) (patch []byte, fields []string, err error) {
	kept, fields, err := keptOf(interpreter, manifest, merged, live)
	if err != nil {
		return nil, nil, err
	}
	operations := []map[string]any{{"op": "add", "path": "/metadata/resourceVersion", "value": template.GetResourceVersion()}} // a mismatch is a conflict
	for _, d := range kept {
		has, same := valueAt(template.Object, manifest.Object, d.Path)
		if same && reflect.DeepEqual(has, d.To) {
			continue
		}
		if !same || !reflect.DeepEqual(has, d.From) {
			return nil, nil, fmt.Errorf("%s is not the template's in this cluster: an override, or the division of replicas, sets it; use --into override", d.Field)
		}
		operation := map[string]any{"op": "replace", "path": pointer(d.Path), "value": d.To}
		switch {
		case d.To == nil:
			operation = map[string]any{"op": "remove", "path": pointer(d.Path)}
		case d.From == nil:
			operation["op"] = "add"
		}
		operations = append(operations, operation)
	}
	patch, err = json.Marshal(operations)
	return patch, fields, err
}

// valueAt returns the value at a path of fields and indexes, nil if there is none. It is not the same if an item of a list on the way has another name than in
// the other object: an override may have put items before it.
func valueAt(value, other any, path []string) (found any, same bool) {
	for _, element := range path {
		_, isItem := value.([]any)
		value, other = childOf(value, element), childOf(other, element)
		if isItem && !reflect.DeepEqual(nameOf(value), nameOf(other)) {
			return nil, false
		}
	}
	return value, true
}

// childOf returns the value of a field, or of an index; nil if there is none.
func childOf(value any, element string) any {
	switch parent := value.(type) {
	case map[string]any:
		return parent[element]
	case []any:
		if i, err := strconv.Atoi(element); err == nil && i >= 0 && i < len(parent) {
			return parent[i]
		}
	}
	return nil
}

// nameOf returns the name of an item of a list, nil if it has none.
func nameOf(value any) any {
	item, _ := value.(map[string]any)
	return item["name"]
}
