// Package karmada suspends the dispatching of a Karmada control plane for single workloads, and resumes it.
//
// Dispatching is suspended in the policy, from where Karmada carries it to bindings and Works, and in the binding, because
// lazy policies and dependencies do not follow a policy. preserveResourcesOnDeletion is set with it: Karmada dispatches
// deletions also while it is suspended, and objects that the federation has taken over carry labels that Karmada knows.
// A Work is suspended when Karmada itself says so in its condition Dispatching: its controllers handle a Work one at a time,
// so none of them is about to write any more.
//
// What was there before is kept in an annotation of each object. So every step can be repeated.
package karmada
