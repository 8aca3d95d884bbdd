// Package membership takes clusters into the federation and lets them go.
//
// In a member the federation is not one user but several, each a ServiceAccount in the namespace karmada-cluster with
// no more rights than its task needs and a token of its own:
//
//   - status: reads nodes, pods, replica sets, events, volumes, metrics and what the API server says about itself, for the hub and the
//     cluster-gateway;
//   - impersonator: acts as the users who come through the cluster's proxy, and as nobody of its own;
//   - registrar: grants, rotates and revokes all of these, for the hub manager;
//   - one engine for each cell, and one for the hub: manages what the federation propagates.
//
// Each can be revoked without touching the others. A cell that is given up loses its engine's identity in every member,
// so that nothing it may still be doing can do harm.
package membership
