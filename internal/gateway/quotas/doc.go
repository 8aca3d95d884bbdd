// Package quotas enforces the object counts of ResourceQuotas over all cells. The objects of a namespace are in many cells, so no API server can
// count them.
//
// As in a cluster, the status of a quota says how many objects there are. A gateway adds a new object to it, by compare-and-swap on the hub,
// before it forwards the creation: two creations at once, in two cells or through two gateways, cannot exceed the quota together. The stock
// quota controller, which runs against the gateway, counts what there is and corrects the status after deletions and failed creations.
//
// Only numbers of objects, the node ports and load balancers of Services, and the storage of claims are limited. What pods request is known where they run:
// FederatedResourceQuotas limit that.
package quotas
