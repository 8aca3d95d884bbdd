// Package process supervises operating system processes: it restarts them with back-off when they die, and can kill, pause
// and restart them on request, to test failures.
//
// On Linux children never outlive the program that started them: the kernel kills them with their parent.
package process
