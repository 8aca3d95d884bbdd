package kinds

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// SameIdentity returns an error if code from outside turned an object into another one. Code that may change a field
// must not be able to write to an object of a different kind, namespace or name.
func SameIdentity(before, after *unstructured.Unstructured) error {
	for _, part := range []struct{ name, before, after string }{
		{"apiVersion", before.GetAPIVersion(), after.GetAPIVersion()},
		{"kind", before.GetKind(), after.GetKind()},
		{"metadata.namespace", before.GetNamespace(), after.GetNamespace()},
		{"metadata.name", before.GetName(), after.GetName()},
	} {
		if part.before != part.after {
			return fmt.Errorf("it changed %s from %q to %q", part.name, part.before, part.after)
		}
	}
	return nil
}
