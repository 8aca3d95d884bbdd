// Package gateway is the one Kubernetes API in front of all cells.
//
// It is k8s.io/apiserver's generic server and handler chain with a router as the last handler: authentication, audit, fairness and
// authorization are those of every API server, with the hub as their source. Options are completed, validated and made a Config, and
// a Config makes a Server, so that an incomplete one cannot be run.
package gateway
