package process

import (
	"errors"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes puts a child into a process group of its own, so that Ctrl-C
// in a terminal reaches only its supervisor, and has the kernel kill it when
// its parent dies.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// The parent of a child is, for Pdeathsig, the thread that forked it. Go ends
// threads at will, so all forks are made by one thread that lives for ever.
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

// awaitStop waits until a child that was told to stop has stopped with all of its threads, which takes a while if there is more to do
// than processors, or has ended.
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
