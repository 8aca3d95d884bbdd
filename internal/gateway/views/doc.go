// Package views shows the objects of member clusters on the gateway's surface /: pods, events, nodes and replica sets of all members as
// ordinary resources.
//
// Reads are answered by cluster-gateways, which cache what members have. What is done to an object (looking into it, changing it, deleting
// it) goes to the member it is in, in the name of the caller; resourceVersions in it are translated from those of the cache, which the
// caller has seen, to those of the member. What is created is a template, and goes where templates live, as does what is done to one.
//
// Everything has been authorized before, by the rules of the hub.
package views
