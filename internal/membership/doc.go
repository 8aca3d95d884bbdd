// Package membership joins clusters to the federation and unjoins them.
//
// The federation has several identities in a member. Each is a ServiceAccount in the namespace karmada-cluster with its own
// token and only the rights that its task needs:
//
//   - status: reads nodes, pods, workloads, Services, events, volumes, metrics and the API server's version, health and discovery, for
//     the hub and the cluster-gateway;
//   - impersonator: impersonates the users of the cluster's proxy, and has no other rights;
//   - registrar: grants, rotates and revokes all of these, for the hub manager;
//   - one engine for each cell, and one for the hub: manages what the federation propagates.
//
// Each can be revoked without affecting the others. A failed cell's engine loses its identity in every member, so that it can
// do no harm.
package membership
