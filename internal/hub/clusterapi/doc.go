// Package clusterapi takes the clusters of Cluster API into the federation, and lets them go when they are deleted.
//
// A management cluster is only read: its Clusters are watched, and of its Secrets those are read that hold a cluster's
// kubeconfig. What was joined this way is marked by labels on the federation's Cluster, which name the management cluster
// and the object there; what carries no such marks was joined by somebody else and is left alone. A management cluster
// that does not answer, or another one under the same kubeconfig, lets nobody go.
package clusterapi
