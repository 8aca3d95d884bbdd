// Package local runs a whole federation of real control planes on this
// machine: what `cellplane up` starts, and what tests start.
//
// A Federation lives in a directory and can be opened again. It is driven
// either in process, or by a Supervisor that is left behind in the background
// and spoken to over a socket in that directory.
package local
