// Package agent runs the agent of a member cluster that the federation cannot reach. The agent runs in the member and needs only a way out to the
// gateway. It applies the Works of its cluster, reports their status and that of the cluster, and renews the cluster's Lease. All of that is the
// code of engines and of the hub manager. It also reports what the workloads of the federation use in the cluster.
//
// The agent sees all cells as one, through the gateway.
package agent
