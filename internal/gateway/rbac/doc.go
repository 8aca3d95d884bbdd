// Package rbac evaluates RBAC objects in memory, with the same results as an API server.
//
// Grants are indexed by subject: a request evaluates only the roles that are bound to its user and groups, in the cluster and in its
// namespace.
package rbac
