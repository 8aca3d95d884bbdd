package index

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Plan is what an index shall have: objects of a kind.
type Plan struct {
	Target Target
	Kind   schema.GroupVersionKind
	Scope  Scope
}

// Scope are the clusters whose objects are wanted, and for each the namespaces; nil means all. It is not changed once it is used.
type Scope map[string][]string

// Add adds a namespace of a cluster, or all if it is empty.
func (s Scope) Add(cluster, namespace string) {
	namespaces, found := s[cluster]
	switch {
	case namespace == "":
		s[cluster] = nil
	case !found || namespaces != nil && !slices.Contains(namespaces, namespace):
		s[cluster] = append(namespaces, namespace)
		slices.Sort(s[cluster])
	}
}

// has reports whether an object is wanted. Objects without a namespace always are.
func (s Scope) has(cluster, namespace string) bool {
	namespaces, found := s[cluster]
	return found && (namespaces == nil || namespace == "" || slices.Contains(namespaces, namespace))
}

func (s Scope) equal(other Scope) bool {
	return maps.EqualFunc(s, other, func(a, b []string) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) })
}
