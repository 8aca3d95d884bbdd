package fields

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// With returns obj with one field set, creating the objects on the way to it. obj stays as it is; the result
// shares with it everything but the maps on the path.
func With(obj map[string]any, value any, path ...string) (map[string]any, error) {
	return with(obj, value, path, 0)
}

func with(obj map[string]any, value any, path []string, depth int) (map[string]any, error) {
	out := make(map[string]any, len(obj)+1)
	maps.Copy(out, obj)
	name := path[depth]
	if depth == len(path)-1 {
		out[name] = value
		return out, nil
	}
	child, ok := obj[name].(map[string]any)
	if current := obj[name]; current != nil && !ok {
		return nil, mismatch("an object", current, path[:depth+1])
	}
	changed, err := with(child, value, path, depth+1)
	if err != nil {
		return nil, err
	}
	out[name] = changed
	return out, nil
}

// Without returns obj with one field removed, or obj itself if it has no such field.
func Without(obj map[string]any, path ...string) map[string]any {
	if found, err := presence(obj, path); err != nil || !found {
		return obj
	}
	return without(obj, path)
}

func without(obj map[string]any, path []string) map[string]any {
	out := maps.Clone(obj)
	if len(path) == 1 {
		delete(out, path[0])
		return out
	}
	child, _ := obj[path[0]].(map[string]any)
	out[path[0]] = without(child, path[1:])
	return out
}

// presence reports whether a field is there, be it with null, which With can set and Without must remove.
func presence(obj map[string]any, path []string) (bool, error) {
	parent, found, err := Map(obj, path[:len(path)-1]...)
	if err != nil || !found {
		return false, err
	}
	_, found = parent[path[len(path)-1]]
	return found, nil
}

// Object wraps the root of an object.
func Object(root map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: root}
}
