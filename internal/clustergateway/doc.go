// Package clustergateway is the cluster-gateway: it keeps the pods, events, nodes and replica sets of all members in compact stores and
// serves them to gateways.
//
// It keeps nothing that members do not have, and starts with nothing. A replica that has read all members is ready; one whose members
// cannot be reached says so about their objects. Gateways are its only clients: they have authorized what they ask for.
package clustergateway
