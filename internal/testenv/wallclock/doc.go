// Package wallclock sets the wall clock of one running process, for tests.
//
// Programs ask the kernel for the time by functions that it maps into each process, the vDSO. The pages are the kernel's, but a debugger may
// write to them: the process then has its own copy. [Shift] writes a function there that asks the kernel and adds an offset to the wall
// clock, and has the Go runtime of the process call it. The monotonic clock stays as it is. Neither the program nor the way it is started
// has to be prepared: it works for etcd and API servers, too.
//
// Other ways were considered. Time namespaces have no wall clocks. Libraries that are loaded before others do nothing in static programs.
// A clock that tests could replace would be test code in production, and would leave out the libraries.
package wallclock
