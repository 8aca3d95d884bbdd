// Package members serves clusters/{name}/proxy: the API of a member cluster, in the name of the caller.
//
// Who may use it is decided by the hub's RBAC on clusters/proxy; what the caller may do in the member is decided by the member, to which
// the caller is named by impersonation. The identity that impersonates is the one in the Cluster's impersonatorSecretRef, which may do
// nothing else.
package members
