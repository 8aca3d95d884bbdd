// Package members serves clusters/{name}/proxy: the API of a member cluster, with the identity of the caller.
//
// The hub's RBAC on clusters/proxy decides who may use it. The member decides what the caller may do there: the gateway impersonates the
// caller with the identity in the Cluster's impersonatorSecretRef, which has no other right.
package members
