// Package serve answers reads of member objects from the stores of a cluster-gateway, as an API server answers them.
//
// The protocol is that of Kubernetes: get, list and watch in JSON, YAML and protobuf, as whole objects, metadata alone or Tables, with
// selectors, pages, bookmarks and initial events. Objects are kept encoded in protobuf, and are sent so to whoever takes it; for others they
// are decoded one at a time, on their way out. An event is encoded once for all who watch in the same form.
//
// Who may read what has been decided before: the only client is a gateway.
package serve
