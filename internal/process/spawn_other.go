//go:build !linux

package process

import "syscall"

// childAttributes puts a child into a process group of its own. Other systems
// than Linux cannot tie its life to ours; see docs/adr/0003-supervision.md.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

func forkWithParentThread(start func() error) error { return start() }

// awaitStop trusts that a child that was told to stop does so soon.
func awaitStop(int) error { return nil }
