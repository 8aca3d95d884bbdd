// Package federate makes control planes that run on a cluster a federation. It issues their certificates, as Secrets of the cluster, installs the
// API, registers the cells and grants the parts their rights. It can be repeated, interrupted and run twice at a time.
package federate
