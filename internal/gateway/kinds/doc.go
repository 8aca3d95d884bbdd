// Package kinds knows the resources that a gateway serves: which there are, which of them are namespaced, where their objects live,
// and how they are announced to clients.
//
// The hub says what there is. A resource whose objects live in cells is announced once every cell serves it; a gateway may be told to
// announce some resources only.
package kinds
