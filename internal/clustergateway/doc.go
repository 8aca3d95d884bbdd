// Package clustergateway is the cluster-gateway: it caches the pods, events, nodes and replica sets of all members in compact stores and
// serves them to gateways.
//
// It has no state of its own and starts empty. A replica is ready once it has read all members; objects of unreachable members are
// marked stale. Gateways are its only clients, and they authorize requests.
package clustergateway
