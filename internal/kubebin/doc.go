// Package kubebin provides the Kubernetes and etcd programs of a local federation. It builds them from source with the Go
// tool, once per set of pinned versions, in the user's cache directory.
//
// The versions are pinned in kube/go.mod. A copy is embedded, so that the cellplane binary can build the programs anywhere.
package kubebin

//go:generate sh -c "cp ../../kube/go.mod pin/go.mod.txt && cp ../../kube/go.sum pin/go.sum.txt"
