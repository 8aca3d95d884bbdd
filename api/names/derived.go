package names

import (
	"hash/fnv"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/rand"
)

// BindingName returns the name of the binding of a template. Templates of the same name and kind in different API
// groups share it.
func BindingName(kind, name string) string {
	return strings.ToLower(objectName(name) + "-" + kind)
}

// EntryOverrideName returns the name of the OverridePolicy with what a cluster keeps when an entry is closed there.
func EntryOverrideName(kind, name, cluster string) string {
	return BindingName(kind, name) + "-" + cluster
}

// WorkloadMetricsName returns the name of the WorkloadMetrics of a workload in a cluster.
func WorkloadMetricsName(kind, name, cluster string) string {
	return BindingName(kind, name) + "." + cluster
}

// WorkName returns the name of the Work of a template. A cluster-scoped template has an empty namespace.
func WorkName(kind, namespace, name string) string {
	identity := name + "-" + kind
	if namespace != "" {
		identity = namespace + "-" + identity
	}
	hash := fnv.New32a()
	// A hash never returns an error.
	_, _ = hash.Write([]byte(strings.ToLower(objectName(identity))))
	return strings.ToLower(objectName(name)) + "-" + rand.SafeEncodeString(strconv.FormatUint(uint64(hash.Sum32()), 10))
}

// DerivedServiceName returns the name of the Service that stands for an imported one.
func DerivedServiceName(service string) string { return "derived-" + service }

// ImportedEndpointSliceName returns the name of an EndpointSlice of an exported Service where it is imported.
func ImportedEndpointSliceName(cluster, slice string) string {
	return "imported-" + cluster + "-" + slice
}

// DispatchedEndpointSliceName returns the name of an EndpointSlice of a MultiClusterService where it is used.
func DispatchedEndpointSliceName(cluster, slice string) string { return cluster + "-" + slice }

// objectName makes a name valid for any kind: names of RBAC objects may contain colons, most others may not.
func objectName(name string) string {
	return strings.ReplaceAll(name, ":", ".")
}

// IsMark reports whether a label or annotation belongs to a federation: to Karmada or Cellplane.
func IsMark(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	if !found {
		return false
	}
	for _, own := range []string{"karmada.io", "cellplane.io"} {
		if domain == own || strings.HasSuffix(domain, "."+own) {
			return true
		}
	}
	return false
}
