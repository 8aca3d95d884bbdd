// Package simulate tells how many replicas of a pod fit the nodes of a cluster, node by node, as kube-scheduler would
// place them: requests, node selectors and affinity, taints, topology spread, affinity between pods, host ports, the
// zones of volumes and priorities.
//
// Nodes that pods cannot tell apart are of one class: the same labels, taints and allocatable resources. What a pod
// demands of labels and taints is looked up once per class, and what is left to do for each node is arithmetic.
package simulate
