package cut

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Mode is a kind of fault.
type Mode string

const (
	// Pass is no fault.
	Pass Mode = "pass"
	// Blackhole holds all bytes in both directions.
	Blackhole Mode = "blackhole"
	// Mute lets requests pass and holds the answers.
	Mute Mode = "mute"
	// Refuse resets connections, those that exist and new ones.
	Refuse Mode = "refuse"
	// Delay delays all bytes.
	Delay Mode = "delay"
)

// Modes are all faults.
func Modes() []Mode { return []Mode{Blackhole, Mute, Refuse, Delay} }

// Fault is the state of a link.
type Fault struct {
	Mode Mode
	// Delay is by how much bytes are late in each direction, with mode Delay.
	Delay time.Duration
}

// Link is the way from a client to a server.
type Link struct{ From, To string }

// String returns the link as an arrow.
func (l Link) String() string { return l.From + " → " + l.To }

// direction is that of bytes on a link.
type direction int

const (
	requests direction = iota
	answers
)

// holds reports whether the fault holds bytes in a direction.
func (f Fault) holds(d direction) bool {
	return f.Mode == Blackhole || (f.Mode == Mute && d == answers)
}

// Network is a set of proxies. The zero value is not usable; call New.
type Network struct {
	identify func(client, server net.Addr) (string, error)

	mu          sync.Mutex
	closed      chan struct{}
	changed     chan struct{} // closed at each change of faults
	faults      map[Link]Fault
	targets     map[string]string // addresses of the servers, by name
	listeners   []net.Listener
	connections map[*connection]struct{}
	group       sync.WaitGroup
}

// New returns a network without servers. identify returns the name of the process that has opened a connection, empty for one that is not
// part of the test and has no faults.
func New(identify func(client, server net.Addr) (string, error)) *Network {
	return &Network{
		identify: identify, closed: make(chan struct{}), changed: make(chan struct{}),
		faults: map[Link]Fault{}, targets: map[string]string{}, connections: map[*connection]struct{}{},
	}
}

// Listen starts the proxy of a server and returns its address. Connections fail until Lead has been called.
func (n *Network) Listen(server string) (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	n.listeners = append(n.listeners, listener)
	n.mu.Unlock()
	n.group.Go(func() { n.accept(listener, server) })
	return listener.Addr().String(), nil
}

// Lead sets the address of a server.
func (n *Network) Lead(server, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.targets[server] = address
}

// Set sets the fault of a link, in place of an earlier one.
func (n *Network) Set(link Link, fault Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if fault.Mode == Pass {
		delete(n.faults, link)
	} else {
		n.faults[link] = fault
	}
	n.wake()
	if fault.Mode != Refuse {
		return
	}
	for c := range n.connections {
		if c.link == link {
			c.reset()
		}
	}
}

// Heal ends all faults.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.faults)
	n.wake()
}

// wake has all that wait look at the faults again. The caller holds mu.
func (n *Network) wake() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// Clients returns the names of the processes that have connections to a server, for tests of the test.
func (n *Network) Clients(server string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var names []string
	for c := range n.connections {
		if c.link.To == server && !slices.Contains(names, c.link.From) {
			names = append(names, c.link.From)
		}
	}
	slices.Sort(names)
	return names
}

// Close ends all connections and waits for all goroutines.
func (n *Network) Close() {
	n.mu.Lock()
	close(n.closed)
	for _, listener := range n.listeners {
		listener.Close()
	}
	for c := range n.connections {
		c.reset()
	}
	n.mu.Unlock()
	n.group.Wait()
}

// acceptRetry is how soon a proxy tries again after it could not accept a connection.
const acceptRetry = 50 * time.Millisecond

func (n *Network) accept(listener net.Listener, server string) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for example, there are too many open files at the moment
			klog.Background().Info("a proxy cannot accept a connection, retrying", "server", server, "err", err)
			if n.sleep(acceptRetry) != nil {
				return
			}
			continue
		}
		n.group.Go(func() { n.serve(client.(*net.TCPConn), server) })
	}
}

// serve connects a client to a server.
func (n *Network) serve(client *net.TCPConn, server string) {
	defer client.Close()
	from, err := n.identify(client.RemoteAddr(), client.LocalAddr())
	if err != nil {
		return // it is gone already
	}
	c := &connection{link: Link{from, server}, client: client}
	if !n.add(c) {
		return
	}
	defer n.remove(c)
	if _, err := n.wait(c.link, requests); err != nil {
		c.reset()
		return
	}
	upstream, err := n.dial(server)
	if err != nil {
		c.reset()
		return
	}
	defer upstream.Close()
	if !c.connect(upstream) {
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { n.pump(c, client, upstream, requests) })
	pumps.Go(func() { n.pump(c, upstream, client, answers) })
	pumps.Wait()
}

func (n *Network) dial(server string) (*net.TCPConn, error) {
	n.mu.Lock()
	address := n.targets[server]
	n.mu.Unlock()
	if address == "" {
		return nil, fmt.Errorf("there is no address of %s", server)
	}
	upstream, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return upstream.(*net.TCPConn), nil
}

func (n *Network) add(c *connection) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.closed:
		return false
	default:
	}
	n.connections[c] = struct{}{}
	return true
}

func (n *Network) remove(c *connection) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.connections, c)
}

var errRefused = errors.New("the connection is refused")

// wait waits until bytes may pass, and returns the fault then.
func (n *Network) wait(link Link, d direction) (Fault, error) {
	for {
		n.mu.Lock()
		fault, changed := n.faults[link], n.changed
		n.mu.Unlock()
		switch {
		case fault.Mode == Refuse:
			return fault, errRefused
		case !fault.holds(d):
			return fault, nil
		}
		select {
		case <-changed:
		case <-n.closed:
			return fault, net.ErrClosed
		}
	}
}
