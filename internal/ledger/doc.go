// Package ledger tracks the free capacity of clusters and the reservations for pods that do not run yet, so that
// two decisions, even in different cells, never use the same capacity.
//
// The ledger of a cluster is one object on the hub, a ClusterLedger. One writer, the hub manager, writes the
// observed capacity; all engines add reservations. Every change is a compare-and-swap of the whole object, so a
// reservation is made against exactly the state that it was checked with. A reservation ends when the observer
// counts its pods as running, in the same write, or when it expires.
//
// The rules are pure functions of the object. Store applies them to a hub. While the hub is unreachable, a Store
// continues with the last known state and reserves at most an equal share of what was free.
package ledger
