// Package fence makes a cell refuse writes that would be lost: those routed by an earlier topology, and those to objects that are being
// moved to another cell.
//
// The fence is a set of ValidatingAdmissionPolicies in every cell. An API server evaluates them as part of the write, against the stored
// object, and again whenever it retries after a conflict. The message of a refusal begins, after the API server's own prefix, with one of
// the constants StaleEpoch, Absent, Frozen, Durable and Reserved.
//
//   - A request that came through a gateway carries the epoch by which it was routed. It has to be at least the floor, which is kept
//     in a Lease: API servers cache all objects of the parameter's kind, and there are few Leases.
//   - While new objects of a slot are created in another cell, a request may only change existing ones. The policy also refuses a
//     server-side apply and a PUT that would create. It refuses to scale, too: the policies see a Scale and not the object, so they
//     cannot tell whether the object is frozen.
//   - The policies do not see the object of a scale, a binding or an eviction either, wherever it comes from. Only gateways may send these:
//     they look whether the object is frozen, and the epoch tells whether they look in the right place. An eviction may take long, so
//     it has to name the version of the pod, which freezing changes.
//   - Only the hub manager may change or delete an object with the label cellplane.io/rebalance-status, or set that label. The mover
//     writes to etcd directly and needs no exception.
//
// An API server applies a policy as soon as its watch has delivered it. Raise therefore probes every API server of a cell until it
// refuses the previous epoch.
package fence
