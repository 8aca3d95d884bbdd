// Package topology provides the gateway with its cells: how to connect to them, and which slots they own.
//
// A Source delivers topologies, from a file or from the hub's CellTopology, Cells and Secrets. A Tracker compiles each into a View, which
// requests hold while they run. It saves the current one on disk, so that a gateway can start while the hub is down.
package topology
