//go:build !linux

package process

import "syscall"

// childAttributes puts a child into its own process group. Only Linux can kill it with its parent; see
// docs/adr/0003-supervision.md.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

func forkWithParentThread(start func() error) error { return start() }

// awaitStop assumes that a child stops soon after SIGSTOP.
func awaitStop(int) error { return nil }
