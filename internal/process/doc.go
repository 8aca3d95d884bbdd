// Package process runs one operating system process and keeps it running: it
// restarts what dies, with back-off, and can kill, pause and restart it on
// request, which is how failures are tested.
//
// Children never outlive the program that started them, whatever kills it: on
// Linux the kernel ends them with their parent.
package process
