// Package policies finds the propagation policy of a template.
//
// Policies are compiled once and indexed by the kind, namespace and name they select, so that a lookup depends on the
// number of policies that select the template, not on the number of all policies. The package makes no requests.
package policies
