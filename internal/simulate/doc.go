// Package simulate computes how many replicas of a pod fit the nodes of a cluster, node by node, as kube-scheduler
// would place them. It considers requests, node selectors and affinity, taints, topology spread, affinity between
// pods, host ports, volume topology and priorities.
//
// Nodes with the same labels, taints and allocatable resources form a class. Label and taint rules are evaluated
// once per class; the work per node is plain arithmetic.
package simulate
