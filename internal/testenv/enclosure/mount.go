package enclosure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mount gives the first process its own view of the file systems.
func (e *Enclosure) mount() error {
	steps := []struct {
		source, target, kind string
		flags                uintptr
		options              string
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""},
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"sysfs", "/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"tmpfs", "/sys/fs/cgroup", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "mode=755"},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
	}
	for _, s := range steps {
		if err := unix.Mount(s.source, s.target, s.kind, s.flags, s.options); err != nil {
			return fmt.Errorf("mounting %s: %w", s.target, err)
		}
	}
	for _, c := range e.Cgroups {
		if err := os.MkdirAll(c.Mount, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(c.Kind, c.Mount, c.Kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, c.Options); err != nil {
			return fmt.Errorf("mounting the cgroups %s: %w", c.Mount, err)
		}
	}
	if err := e.copyOnWrite("/etc", "/var"); err != nil {
		return err
	}
	for _, dir := range e.Private {
		own := e.private(dir)
		if err := errors.Join(os.MkdirAll(own, 0o755), os.MkdirAll(dir, 0o755)); err != nil {
			return err
		}
		if err := bind(own, dir); err != nil {
			return err
		}
	}
	for _, file := range e.Kept {
		if err := e.keep(file); err != nil {
			return err
		}
	}
	// Container runtimes need mounts that reach their containers.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing mounts: %w", err)
	}
	return nil
}

// copyOnWrite lets nothing that is written below some directories get out.
func (e *Enclosure) copyOnWrite(dirs ...string) error {
	own, err := os.Open(e.Dir) // it may be in one of them
	if err != nil {
		return err
	}
	defer own.Close()
	for _, dir := range dirs {
		upper, work := e.private(dir+"-written"), e.private(dir+"-work")
		if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
			return err
		}
		if err := unix.Mount("overlay", dir, "overlay", 0, "lowerdir="+dir+",upperdir="+upper+",workdir="+work); err != nil {
			return fmt.Errorf("covering %s: %w; set TMPDIR to a directory on a disk", dir, err)
		}
		if strings.HasPrefix(e.Dir, dir+"/") {
			if err := bind(fmt.Sprintf("/proc/self/fd/%d", own.Fd()), e.Dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// keep covers a file with a copy.
func (e *Enclosure) keep(file string) error {
	content, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	own := e.private(file)
	if err := os.WriteFile(own, content, 0o644); err != nil {
		return err
	}
	return bind(own, file)
}

func (e *Enclosure) private(path string) string {
	return filepath.Join(e.Dir, "private", strings.ReplaceAll(strings.Trim(path, "/"), "/", "-"))
}

func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("covering %s: %w", target, err)
	}
	return nil
}
