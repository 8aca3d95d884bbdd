package adopt

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Source returns the objects of one kind and one namespace in a cluster, sorted by name, and nil at the end. The source
// without a cluster is the federation: its objects are templates.
type Source struct {
	Cluster string
	Next    func() (*unstructured.Unstructured, error)
}

// Groups visits the groups of several sources in the order of their names. It holds one object of each source at a time,
// so that memory does not depend on the number of objects.
func Groups(sources []Source, visit func(Group) error) error {
	sources = slices.Clone(sources)
	slices.SortFunc(sources, func(a, b Source) int { return strings.Compare(a.Cluster, b.Cluster) })
	heads := make([]*unstructured.Unstructured, len(sources))
	for i := range sources {
		if err := advance(&sources[i], &heads[i]); err != nil {
			return err
		}
	}
	for {
		name, found := lowest(heads)
		if !found {
			return nil
		}
		var group Group
		for i, head := range heads {
			if head == nil || head.GetName() != name {
				continue
			}
			group.Key = KeyOf(head)
			if sources[i].Cluster == "" {
				group.Template = head
			} else {
				group.Objects = append(group.Objects, Object{Cluster: sources[i].Cluster, Object: head})
			}
			if err := advance(&sources[i], &heads[i]); err != nil {
				return err
			}
		}
		if len(group.Objects) == 0 {
			continue
		}
		if err := visit(group); err != nil {
			return err
		}
	}
}

func advance(source *Source, head **unstructured.Unstructured) error {
	next, err := source.Next()
	if err != nil {
		return err
	}
	if next != nil && *head != nil && next.GetName() <= (*head).GetName() {
		return fmt.Errorf("cluster %s does not list its %ss in the order of their names: %s comes after %s", source.Cluster, next.GetKind(), next.GetName(), (*head).GetName())
	}
	*head = next
	return nil
}

func lowest(heads []*unstructured.Unstructured) (name string, found bool) {
	for _, head := range heads {
		if head != nil && (!found || head.GetName() < name) {
			name, found = head.GetName(), true
		}
	}
	return name, found
}
