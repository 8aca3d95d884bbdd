// Package kinds knows the resources that a gateway serves, and serves their discovery documents.
//
// Resources are those of the hub. A resource whose objects live in cells is announced once every cell serves it. A gateway may be
// configured to announce some resources only.
package kinds
