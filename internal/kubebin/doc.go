// Package kubebin provides the Kubernetes and etcd programs that a local
// federation runs. They are built from source by the Go tool, once per set of
// pins, into a cache directory of the user.
//
// The pins are the module in kube/; a copy is embedded here, so that the
// cellplane binary can build them anywhere.
package kubebin

//go:generate sh -c "cp ../../kube/go.mod pin/go.mod.txt && cp ../../kube/go.sum pin/go.sum.txt"
