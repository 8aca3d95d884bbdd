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

// lockSuffix ends the name of a file beside the directory of an enclosure. It is locked as long as the program outside runs, lists the enclosure's
// cgroups, and is the first to be created and the last to be removed: what a killed program leaves always has one.
const lockSuffix = ".lock"

// errInUse says that another program has an enclosure, or has just removed it.
var errInUse = errors.New("the enclosure is in use")

// newLock creates the lock of a new enclosure.
func newLock() (*os.File, error) {
	for {
		f, err := os.CreateTemp("", prefix+"*"+lockSuffix)
		if err != nil {
			return nil, err
		}
		if err = lock(f); err == nil {
			return f, nil
		}
		f.Close()
		if !errors.Is(err, errInUse) { // otherwise another program has swept it since it was created
			return nil, err
		}
	}
}

// lock locks a file that must not have been removed.
func lock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return errInUse
		}
		return err
	}
	own, err := f.Stat()
	if err != nil {
		return err
	}
	if present, err := os.Lstat(f.Name()); err != nil || !os.SameFile(own, present) {
		return errInUse
	}
	return nil
}

// Sweep removes what is left of enclosures whose programs outside were killed.
func Sweep() error {
	files, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"+lockSuffix))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := sweep(file); err != nil && !errors.Is(err, errInUse) {
			return fmt.Errorf("removing what a killed test has left: %w", err)
		}
	}
	return nil
}

func sweep(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lock(f); err != nil {
		return err
	}
	return remove(f)
}

// record writes into a lock which cgroups the enclosure has: those of the next program may be elsewhere.
func record(f *os.File, cgroups []cgroup) error {
	var text strings.Builder
	for _, c := range cgroups {
		fmt.Fprintln(&text, c.dir())
	}
	_, err := f.WriteString(text.String())
	return err
}

// endsWithin is how long the kernel may take to end the processes of an enclosure after their parents have died.
const endsWithin = 30 * time.Second

// remove removes the cgroups and the directory of an enclosure whose processes have ended or are about to, and then its lock, which this program has.
func remove(f *os.File) error {
	dir := strings.TrimSuffix(f.Name(), lockSuffix)
	cgroups, err := os.ReadFile(f.Name())
	if err != nil {
		return err
	}
	deadline := time.Now().Add(endsWithin)
	for path := range strings.Lines(string(cgroups)) {
		path = strings.TrimSuffix(path, "\n")
		if !filepath.IsAbs(path) || filepath.Base(path) != filepath.Base(dir) {
			return fmt.Errorf("%s lists %q, which is no cgroup of it", f.Name(), path)
		}
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
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Remove(f.Name())
}
