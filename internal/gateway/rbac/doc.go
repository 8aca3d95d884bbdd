// Package rbac answers who may do what from RBAC objects in memory, with the same answers as an API server gives that holds these
// objects.
//
// Grants are indexed by subject: a request looks only at the roles that its user and groups are bound to, in the cluster and in its
// namespace.
package rbac
