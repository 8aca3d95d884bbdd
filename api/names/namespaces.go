package names

import (
	"strings"
)

// Namespaces of the control plane.
const (
	// SystemNamespace holds objects of the control plane itself.
	SystemNamespace = "karmada-system"
	// ClusterNamespace holds the Secrets of members and, in members, the identities of the control plane.
	ClusterNamespace = "karmada-cluster"
	// ExecutionNamespacePrefix is the prefix of execution namespaces.
	ExecutionNamespacePrefix = "karmada-es-"
)

// ExecutionNamespace returns the namespace that holds the Works of a cluster.
func ExecutionNamespace(cluster string) string {
	return ExecutionNamespacePrefix + cluster
}

// ClusterFromExecutionNamespace returns the cluster of an execution namespace, and whether it is one.
func ClusterFromExecutionNamespace(namespace string) (cluster string, ok bool) {
	cluster, ok = strings.CutPrefix(namespace, ExecutionNamespacePrefix)
	return cluster, ok && cluster != ""
}

// IsReservedNamespace reports whether a namespace belongs to the control plane. Policies do not apply to it.
func IsReservedNamespace(namespace string) bool {
	return namespace == SystemNamespace || namespace == ClusterNamespace || strings.HasPrefix(namespace, ExecutionNamespacePrefix)
}
