// Package local runs a federation of real control planes on this machine, for `cellplane up` and for tests.
//
// A Federation keeps its state in a directory and can be reopened. It runs either in process, or in a background Supervisor
// that serves a socket in that directory.
package local
