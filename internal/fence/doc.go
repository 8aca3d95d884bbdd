// Package fence keeps a cell from accepting writes that would be lost: those routed by a former topology, and those to objects that are
// on their way to another cell.
//
// The fence is a set of ValidatingAdmissionPolicies in every cell. An API server evaluates them as part of the write itself, against
// the object as it is stored at that moment, again whenever a concurrent write makes it start over. What they refuse begins, behind
// the words of the API server, with one of the constants StaleEpoch, Absent and Frozen.
//
//   - A request that came through a gateway carries the epoch by which it was routed. It has to be at least the floor, which is kept
//     in a Lease. A Lease, because API servers keep all objects of the parameter's kind in memory, and there are few of them.
//   - A request that may only change what exists, because new objects of its slot are made elsewhere, creates nothing. That covers
//     a server-side apply and a PUT of an absent name too. It does not scale either: the policies see a Scale in place of the object,
//     which does not tell whether the object is frozen.
//   - An object that carries the label cellplane.io/rebalance-status is changed and deleted by nobody but the hub manager, and nobody
//     else can give it that label. Raw writes of the mover do not pass the API server and need no exception.
//
// A policy takes effect in an API server when that has heard of it. Raise therefore asks every API server of a cell until it refuses
// the epoch before.
package fence
