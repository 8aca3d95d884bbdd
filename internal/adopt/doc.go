// Package adopt plans how objects that already exist in member clusters come under the federation in place.
//
// The objects of one name in several clusters are a [Group]. For each group [Planner.Plan] finds a template, overrides
// for what differs between the clusters and a policy that keeps every replica where it is. It renders the result as an
// engine would and compares it with what the clusters have. A group for which they are not equal is refused, with the
// field. [Compare] names the fields in which two states of an object differ, for a rehearsal in the cluster itself.
//
// Everything here is a pure function of its input; nothing is read from or written to a cluster.
package adopt
