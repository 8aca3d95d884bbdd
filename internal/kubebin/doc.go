// Package kubebin provides the Kubernetes and etcd programs of a local federation. It builds them from source with the Go
// tool, once per set of pinned versions, in the user's cache directory.
//
// The versions are pinned in kube/go.mod, and that of metrics-server in kube/metrics-server/go.mod. Copies are embedded, so that the cellplane binary can build
// the programs anywhere.
package kubebin

//go:generate sh -c "cp ../../kube/go.mod pin/go.mod.txt && cp ../../kube/go.sum pin/go.sum.txt"
//go:generate sh -c "cp ../../kube/metrics-server/go.mod pin/metrics-server.mod.txt && cp ../../kube/metrics-server/go.sum pin/metrics-server.sum.txt"
