// Package views serves pods, events, nodes and replica sets of all member clusters as ordinary resources under the gateway's /.
//
// Reads go to cluster-gateways, which cache the objects of members. Other requests for an object, such as logs, patch or delete, go to its
// member with the identity of the caller. Their resourceVersions are translated from those of the cache to those of the member, and those of
// answers back, once the cache shows what was written. Creates make templates, and go to hub or cells, as do requests for templates.
//
// All requests have been authorized by the hub's RBAC before.
package views
