// Package doctor examines a running federation through the kubeconfig of its hub, and says for each finding what to do. It only reads.
//
// A check is a function in a file of its own, listed in checks. Each kind of finding has a runbook in docs/operations.md, under a heading of the
// same name.
package doctor
