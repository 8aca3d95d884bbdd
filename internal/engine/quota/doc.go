// Package quota keeps to FederatedResourceQuotas: what the workloads of a namespace are given in all clusters together
// stays within overall, and clusters with a share of their own get it as a ResourceQuota.
//
// What each cell uses stands on the quota itself, on the hub, and is changed by compare-and-swap before a decision is
// written: so cells that schedule at once do not exceed it together. The hub's engine adds up the status.
package quota
