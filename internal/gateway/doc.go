// Package gateway is the Kubernetes API in front of all cells.
//
// It is the generic server and handler chain of k8s.io/apiserver with a router as the last handler. Authentication, audit, fairness and
// authorization are those of kube-apiserver and take their configuration from the hub.
//
// Options are completed and validated, a Config is made from them, and a Server from the Config, so an incomplete server cannot run.
package gateway
