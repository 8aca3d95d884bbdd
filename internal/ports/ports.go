// Package ports chooses and reserves ports for servers on loopback. Programs that choose concurrently get different ports.
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

// Ports are chosen below the ephemeral range, so that a saved port is not taken by an outgoing connection.
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

// reserved are the lock files of the ports of this process. The kernel releases the locks when the process ends.
var reserved = struct {
	sync.Mutex
	files map[int]*os.File
}{files: map[int]*os.File{}}

// Reserve reserves a port for this process, or returns who uses it.
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

// Release releases a port.
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
