// Package ports chooses ports for servers on loopback and reserves them, so
// that programs which choose at the same time do not choose the same.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Ports are chosen below the range from which systems take the ports of
// outgoing connections, so that a kept port is not lost to one of those.
const first, last = 20000, 29999

// Choose returns a free port and reserves it.
func Choose() (int, error) {
	for range 1000 {
		port := first + rand.IntN(last-first+1)
		if Reserve(port) == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d", first, last)
}

// reserved holds the lock files of the ports of this process. The kernel drops
// the locks with the process.
var reserved = struct {
	sync.Mutex
	files map[int]*os.File
}{files: map[int]*os.File{}}

// Reserve takes a port for this process, or says who has it.
func Reserve(port int) error {
	reserved.Lock()
	defer reserved.Unlock()
	if reserved.files[port] != nil {
		return errors.New("this program uses it already")
	}
	f, err := lock(port)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		f.Close()
		return errors.New("another program listens on it")
	}
	listener.Close()
	reserved.files[port] = f
	return nil
}

// Release gives a port back.
func Release(port int) {
	reserved.Lock()
	defer reserved.Unlock()
	if f := reserved.files[port]; f != nil {
		f.Close()
		delete(reserved.files, port)
	}
}

func lock(port int) (*os.File, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "cellplane", "ports")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, errors.New("another federation has reserved it")
	}
	return f, nil
}
