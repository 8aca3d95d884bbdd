// Package render turns a template into the object of one member cluster: what the cluster should get ([Manifest]), and
// that merged into what the cluster has ([Merge]).
//
// Engines write by it, and adoption shows by it what an engine would write. Nothing is read from or written to a
// cluster.
package render
