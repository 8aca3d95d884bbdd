package adopt

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Key identifies a group. Without a namespace its objects are cluster-scoped.
type Key struct {
	schema.GroupVersionKind
	Namespace, Name string
}

// KeyOf returns the key of an object.
func KeyOf(obj *unstructured.Unstructured) Key {
	return Key{GroupVersionKind: obj.GroupVersionKind(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// String returns kind and name, for messages.
func (k Key) String() string {
	if k.Namespace == "" {
		return fmt.Sprintf("%s %s", k.Kind, k.Name)
	}
	return fmt.Sprintf("%s %s/%s", k.Kind, k.Namespace, k.Name)
}

// Object is an object of a member cluster, as its API server returned it.
type Object struct {
	Cluster string
	Object  *unstructured.Unstructured
}

// Group is the objects with the same key, at most one of each cluster, sorted by cluster.
type Group struct {
	Key     Key
	Objects []Object
	// Template is the federation's object with the same key, nil if there is none.
	Template *unstructured.Unstructured
}
