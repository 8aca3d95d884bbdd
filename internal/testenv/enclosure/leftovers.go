package enclosure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// prefix begins the names of directories and cgroups of enclosures.
const prefix = "cellplane-enclosure-"

// lockName is a file that is locked as long as the program outside runs.
const lockName = "lock"

func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Sweep removes what is left of enclosures whose programs outside were killed.
func Sweep() error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		// One that has no lock yet is being created.
		if _, err := os.Stat(filepath.Join(dir, lockName)); err != nil {
			continue
		}
		lock, err := lockDir(dir)
		if err != nil { // in use
			continue
		}
		err = remove(dir)
		lock.Close()
		if err != nil {
			return fmt.Errorf("removing what a killed test has left: %w", err)
		}
	}
	return nil
}

// endsWithin is how long the kernel may take to end the processes of an enclosure after their parents have died.
const endsWithin = 30 * time.Second

// remove removes the cgroups and the directory of an enclosure whose processes have ended or are about to.
func remove(dir string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(endsWithin)
	for _, c := range all {
		path := filepath.Join(c.Mount, c.Parent, filepath.Base(dir))
		for err = removeCgroup(path); errors.Is(err, unix.EBUSY) && time.Now().Before(deadline); err = removeCgroup(path) {
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			return err
		}
	}
	// Mounts in the enclosure are not seen here. One that is would be somebody else's, with data.
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if strings.Contains(string(mounts), " "+dir+"/") {
		return fmt.Errorf("something is mounted below %s", dir)
	}
	return os.RemoveAll(dir)
}
