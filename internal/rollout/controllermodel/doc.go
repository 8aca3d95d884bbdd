// Package controllermodel models the controllers of workloads in a member cluster: the Deployment and ReplicaSet controllers and the
// StatefulSet controller of Kubernetes, and the CloneSet controller of OpenKruise. Tests run the rollout planner against it.
//
// A model has the rules by which a controller creates and removes pods, and none of its I/O. It runs in steps: one pass of a controller,
// one ReplicaSet that catches up, one pod that becomes available. The caller chooses the order by a random source, so every delay between
// the parts of a controller occurs. A pass is atomic, and what a pass decides is visible to the next one.
//
// One thing is assumed about the speed of a member: before a Deployment's controller reports a generation with another revision or other
// replicas, its ReplicaSets have caught up with what it decided before. A rollout that is turned around could otherwise look finished,
// since the status of a Deployment does not tell the generation of its ReplicaSets.
package controllermodel
