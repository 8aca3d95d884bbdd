// Package revisions defines how the federation stores the revisions of a workload, such that kubectl rollout history and undo find them: those of a Deployment
// as ReplicaSets without replicas, those of a StatefulSet as ControllerRevisions. It also plans which to create, to number anew and to remove. It does no I/O.
package revisions
