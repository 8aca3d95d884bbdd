// Package topology tells a gateway which cells there are, how they are reached and which slots are whose.
//
// A Source delivers topologies, from a file or from the hub's CellTopology, Cells and Secrets. A Tracker compiles each into a View, a
// value that requests hold on to while they run, and keeps the last good one on disk, so that a gateway that starts while the
// hub is down still knows its cells.
package topology
