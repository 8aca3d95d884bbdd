package adopt

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/internal/interpreter/fields"
)

// variant is an object that some clusters have in common.
type variant struct {
	object   *unstructured.Unstructured
	clusters []string
}

// variantsOf returns the variants among members, in the order of their first cluster, and the index of the one for the
// template: the most frequent. If only some variants of a Service have node ports it is one without: the federation
// allocates node ports for a template that may have them, and a variant without cannot have any.
func variantsOf(members []member) (base int, variants []variant) {
	for _, m := range members {
		same := func(v variant) bool { return reflect.DeepEqual(v.object.Object, m.object.Object) }
		if i := slices.IndexFunc(variants, same); i >= 0 {
			variants[i].clusters = append(variants[i].clusters, m.cluster)
		} else {
			variants = append(variants, variant{m.object, []string{m.cluster}})
		}
	}
	rank := func(v variant) int {
		if hasNodePorts(v.object) {
			return len(v.clusters)
		}
		return len(v.clusters) + len(members)
	}
	for i := range variants {
		if rank(variants[i]) > rank(variants[base]) {
			base = i
		}
	}
	return base, variants
}

func portsOf(obj *unstructured.Unstructured) []map[string]any {
	if obj.GetAPIVersion() != "v1" || obj.GetKind() != "Service" {
		return nil
	}
	ports, err := fields.Objects(obj.Object, "spec", "ports")
	if err != nil {
		return nil // the rehearsal in the cluster reports it
	}
	return ports
}

func hasNodePorts(obj *unstructured.Unstructured) bool {
	return slices.ContainsFunc(portsOf(obj), func(port map[string]any) bool { return port["nodePort"] != nil })
}

// samePorts reports whether several clusters have the same node ports, so that somebody has chosen them. Otherwise each
// cluster has allocated its own.
func samePorts(variants []variant, clusters int) bool {
	nodePorts := func(v variant) []any {
		var list []any
		for _, port := range portsOf(v.object) {
			list = append(list, port["nodePort"])
		}
		return list
	}
	for _, v := range variants {
		if !reflect.DeepEqual(nodePorts(v), nodePorts(variants[0])) {
			return false
		}
	}
	return clusters > 1
}

// withoutNodePorts returns a Service without node ports, and any other object as it is.
func withoutNodePorts(obj *unstructured.Unstructured) *unstructured.Unstructured {
	if !hasNodePorts(obj) {
		return obj
	}
	obj = obj.DeepCopy()
	for _, port := range portsOf(obj) {
		delete(port, "nodePort")
	}
	return obj
}
