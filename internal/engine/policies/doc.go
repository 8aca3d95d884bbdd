// Package policies answers which propagation policy a template belongs to.
//
// Policies are compiled once and filed by the kind, namespace and name they select, so that the cost of an answer
// depends on how many policies select the template, not on how many there are. Nothing here talks to a cluster.
package policies
