// Package cellcontrolplane makes cells with Cluster API: it is the controller of CellControlPlanes, in the cluster on which a federation is installed.
//
// A CellControlPlane gets what the chart has for a cell, and is a cell of the federation when its API servers answer. If its Cluster has the label
// names.TopologyLabel it joins the topology. When it is deleted it is drained first.
//
// Nothing is remembered between two steps but what the objects say: the controller can be killed at any time.
package cellcontrolplane
