package names

import (
	"strings"
)

// Namespaces of the control plane.
const (
	// SystemNamespace holds what belongs to the control plane itself.
	SystemNamespace = "karmada-system"
	// ClusterNamespace holds the Secrets of members, and in members the identities the control plane uses.
	ClusterNamespace = "karmada-cluster"
	// ExecutionNamespacePrefix begins the names of execution namespaces.
	ExecutionNamespacePrefix = "karmada-es-"
)

// ExecutionNamespace returns the namespace that holds the Works of a cluster.
func ExecutionNamespace(cluster string) string {
	return ExecutionNamespacePrefix + cluster
}

// ClusterFromExecutionNamespace returns the cluster whose Works a namespace holds, and whether it holds any cluster's.
func ClusterFromExecutionNamespace(namespace string) (cluster string, ok bool) {
	cluster, ok = strings.CutPrefix(namespace, ExecutionNamespacePrefix)
	return cluster, ok && cluster != ""
}

// IsReservedNamespace reports whether a namespace belongs to the control plane, so that no policy reaches into it.
func IsReservedNamespace(namespace string) bool {
	return namespace == SystemNamespace || namespace == ClusterNamespace || strings.HasPrefix(namespace, ExecutionNamespacePrefix)
}
