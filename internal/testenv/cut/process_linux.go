package cut

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Processes identifies the clients of connections among processes of this user. pids returns the current ones and their names.
func Processes(pids func() map[int]string) func(client, server net.Addr) (string, error) {
	scans := &scans{scan: func() *sockets { return scanSockets(pids()) }}
	return func(client, server net.Addr) (string, error) {
		return scans.next().owner(client, server)
	}
}

// scans shares scans among those who wait for one: an API server opens many connections when it starts, and a scan reads the sockets of all processes.
type scans struct {
	scan func() *sockets

	mu      sync.Mutex
	running bool
	waiting []chan *sockets
}

// next returns the result of a scan that begins after the call.
func (s *scans) next() *sockets {
	result := make(chan *sockets, 1)
	s.mu.Lock()
	s.waiting = append(s.waiting, result)
	if !s.running {
		s.running = true
		go s.run()
	}
	s.mu.Unlock()
	return <-result
}

// run scans until nobody waits.
func (s *scans) run() {
	for {
		s.mu.Lock()
		served := s.waiting
		s.waiting, s.running = nil, len(served) > 0
		s.mu.Unlock()
		if len(served) == 0 {
			return
		}
		found := s.scan()
		for _, result := range served {
			result <- found
		}
	}
}

// sockets are the connections of this machine and the processes that have them.
type sockets struct {
	inodes map[string]string // by local and remote address, as the kernel prints them
	owners map[string]string // names of processes, by inode
	err    error
}

// owner returns the name of the process that has the client's side of a connection, empty if it is none of the known ones.
func (s *sockets) owner(client, server net.Addr) (string, error) {
	if s.err != nil {
		return "", s.err
	}
	inode, found := s.inodes[kernelText(client.(*net.TCPAddr))+" "+kernelText(server.(*net.TCPAddr))]
	if !found {
		return "", fmt.Errorf("no socket of %s is connected to %s", client, server)
	}
	return s.owners[inode], nil
}

// scanSockets reads the connections, and then which of them the processes have.
func scanSockets(pids map[int]string) *sockets {
	s := &sockets{inodes: map[string]string{}, owners: map[string]string{}}
	table, err := os.Open("/proc/net/tcp")
	if err != nil {
		s.err = err
		return s
	}
	defer table.Close()
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
		if fields := strings.Fields(lines.Text()); len(fields) > 9 && fields[9] != "0" {
			s.inodes[fields[1]+" "+fields[2]] = fields[9]
		}
	}
	s.err = lines.Err()
	for pid, name := range pids {
		s.addOwner(pid, name)
	}
	return s
}

// addOwner adds the sockets of a process, unless it has ended.
func (s *sockets) addOwner(pid int, name string) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	files, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, file := range files {
		target, err := os.Readlink(filepath.Join(dir, file.Name()))
		if inode, socket := strings.CutPrefix(target, "socket:["); err == nil && socket {
			s.owners[strings.TrimSuffix(inode, "]")] = name
		}
	}
}

// kernelText returns an IPv4 address as the kernel prints it: the address in the byte order of the machine.
func kernelText(address *net.TCPAddr) string {
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(address.IP.To4()), address.Port)
}
