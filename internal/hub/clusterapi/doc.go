// Package clusterapi joins the clusters of Cluster API to the federation, and unjoins them when they are deleted.
//
// A management cluster is only read: its Clusters are watched, and the Secrets with their kubeconfigs are read. Labels on
// the federation's Cluster name the management cluster and the object there. A Cluster without these labels was joined by
// somebody else and is left alone. No cluster is unjoined while the management cluster is unreachable, or if another one
// answers under the same kubeconfig.
package clusterapi
