// Package controlplane runs real Kubernetes control planes on this machine: etcd and kube-apiserver, and for members also
// kube-controller-manager, kube-scheduler and nodes that kwok simulates.
//
// Each control plane has its own certificate authorities and listens only on loopback, unless it gets another address. All connections are mutually
// authenticated.
package controlplane
