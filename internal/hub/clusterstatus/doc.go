// Package clusterstatus finds out how the members are and writes it into the status of their Clusters: health,
// version, APIs, nodes and resources. It is done here once for the whole federation; everybody else reads the Clusters.
//
// Each member has a collector with goroutines, connections and time limits of its own, so that one which is slow or
// hangs delays nobody else. A collector writes at most once in an interval, and nothing that did not change.
package clusterstatus
