// Package controlplane runs real Kubernetes control planes on this machine:
// etcd and kube-apiserver, and for members also kube-controller-manager,
// kube-scheduler and nodes simulated by kwok.
//
// Each control plane has its own certificate authorities and listens on
// loopback alone; every connection is mutually authenticated.
package controlplane
