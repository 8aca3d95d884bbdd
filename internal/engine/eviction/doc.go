// Package eviction takes workloads out of clusters and lets the old copies go.
//
// Who evicts takes the cluster off the binding and leaves a task behind that says how: the copy in the cluster is
// removed at once, kept until the new ones are healthy or a grace period is over, or kept until a person says so. As long
// as the task is there the cluster is not chosen again. The controller of this package ends tasks.
package eviction
