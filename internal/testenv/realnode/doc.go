// Package realnode starts a Kubernetes cluster with one real node for tests: kubelet, kube-proxy, containerd, runc and CoreDNS, all built from pinned Go modules.
// Everything runs in an enclosure, ends with the test, and changes nothing outside. Pods reach each other, Services and the node, and nothing else.
//
// It is for what simulated nodes cannot show: that pods start, with their images, rights, volumes, probes and names. For numbers of nodes and pods, package
// testenv has simulated ones.
//
// Containers have no seccomp profiles, because runc would need libseccomp for them. NetworkPolicies have no effect.
package realnode
