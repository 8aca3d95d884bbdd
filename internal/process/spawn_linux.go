package process

import (
	"errors"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes puts a child into its own process group, so that Ctrl-C in a terminal reaches only the supervisor. The
// kernel kills the child when its parent dies.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// For Pdeathsig the parent of a child is the thread that forked it. Go may end threads at any time, so one locked thread
// makes all forks.
var forks = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

func forkWithParentThread(start func() error) error {
	result := make(chan error)
	forks() <- func() { result <- start() }
	return <-result
}

// awaitStop waits until a child has stopped with all its threads after SIGSTOP, or has exited. That takes a while on a loaded
// machine.
func awaitStop(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD):
			return errNotRunning
		default:
			return err
		}
	}
}
