// Package quota enforces FederatedResourceQuotas. The workloads of a namespace in all clusters together stay within
// overall. Clusters with a static assignment get it as a ResourceQuota.
//
// The usage of each cell is recorded on the quota on the hub. It is updated by compare-and-swap before a decision
// is written, so cells that schedule at the same time cannot exceed the quota together. The hub's engine updates
// the status, and removes the usage of cells that are gone.
package quota
