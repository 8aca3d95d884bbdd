// Package eviction removes workloads from clusters.
//
// An eviction removes the cluster from the binding and adds a graceful eviction task. The task says when the copy
// in the cluster is deleted: at once, after the replacement is healthy or a grace period expires, or when a user
// confirms it. While the task exists, the cluster is not chosen again. The controller of this package ends tasks.
package eviction
