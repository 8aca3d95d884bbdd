// Package clusterstatus writes the status of Clusters: health, version, APIs, nodes and resources of the members. It does so
// once for the whole federation; all other parts read the Clusters.
//
// Each member has its own collector with goroutines, connections and timeouts, so that a slow member delays no other. A
// collector writes at most once per interval, and only changes.
package clusterstatus
