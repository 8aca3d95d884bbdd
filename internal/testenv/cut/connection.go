package cut

import (
	"net"
	"sync"
	"time"
)

// connection is one connection through a proxy.
type connection struct {
	link   Link
	client *net.TCPConn

	mu       sync.Mutex
	ended    bool
	upstream *net.TCPConn
}

// connect sets the server's side, unless the connection has been reset.
func (c *connection) connect(upstream *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.upstream = upstream
	return !c.ended
}

// reset resets both sides.
func (c *connection) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for _, side := range []*net.TCPConn{c.client, c.upstream} {
		if side != nil {
			_ = side.SetLinger(0) // it fails only if it is closed
			side.Close()
		}
	}
}

// chunk is some bytes and when they were read. No bytes are the end.
type chunk struct {
	bytes []byte
	read  time.Time
}

// inFlight is the number of chunks between the two sides of a connection.
const inFlight = 64

// pump copies bytes in one direction until their end.
func (n *Network) pump(c *connection, from, to *net.TCPConn, d direction) {
	chunks := make(chan chunk, inFlight)
	stopped := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() { readChunks(from, chunks, stopped) })
	defer reader.Wait()
	defer close(stopped)
	for next := range chunks {
		fault, err := n.wait(c.link, d)
		if err == nil && fault.Mode == Delay {
			err = n.sleep(time.Until(next.read.Add(fault.Delay)))
		}
		if err != nil {
			c.reset()
			return
		}
		if len(next.bytes) == 0 {
			_ = to.CloseWrite() // the other side has gone
			return
		}
		if _, err := to.Write(next.bytes); err != nil {
			c.reset()
			return
		}
	}
}

// readChunks reads until the end.
func readChunks(from *net.TCPConn, chunks chan<- chunk, stopped <-chan struct{}) {
	for {
		buffer := make([]byte, 16<<10)
		length, err := from.Read(buffer)
		if length > 0 {
			select {
			case chunks <- chunk{buffer[:length], time.Now()}:
			case <-stopped:
				return
			}
		}
		if err != nil {
			select {
			case chunks <- chunk{nil, time.Now()}:
			case <-stopped:
			}
			return
		}
	}
}

// sleep waits, unless the network is closed before.
func (n *Network) sleep(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-n.closed:
		return net.ErrClosed
	}
}
