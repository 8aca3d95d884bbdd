// Package manager is the hub manager. It replicates global objects into the cells, labels policies with permanent IDs, manages
// clusters, changes the topology, backs cells up and fails them over, and installs the admission rules of the hub. The replica that
// holds the Lease leads; the others stand by.
//
// Options become a Config by Complete and Validate.
package manager
