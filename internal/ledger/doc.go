// Package ledger keeps account of what clusters have left and what of it is promised to workloads whose pods do not
// run yet, so that two decisions, also in different cells, never promise the same room.
//
// The account of a cluster is one object on the hub, a ClusterLedger, that holds both: the room is observed by one
// writer, the hub manager, and promises are added by all engines. Every change is a compare-and-swap of the whole, so a
// promise is made against exactly the room and the promises that it was checked with. Promises end when the observer
// counts their pods as running, in the same write, or when they expire.
//
// The rules are pure functions of the object; Store applies them against a hub. While the hub is away a Store goes on
// with the last it has seen, and promises no more than an equal share of what was left then.
package ledger
