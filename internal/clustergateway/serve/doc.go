// Package serve answers reads of member objects from the stores of a cluster-gateway, as an API server answers them.
//
// The protocol is that of Kubernetes: get, list and watch in JSON, YAML and protobuf, as whole objects, metadata alone or Tables, with
// selectors, pages, bookmarks and initial events. Objects are cached as protobuf and sent as such to clients that accept it; for others
// they are decoded one at a time. An event is encoded once for all watches in the same form.
//
// Requests are already authorized: the only client is a gateway.
package serve
