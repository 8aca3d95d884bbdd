package cut

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

// clientEnv makes the test binary a client: it connects to the address, sends each line of its input, and prints each line of the answer.
const clientEnv = "CUT_TEST_CLIENT"

func TestMain(m *testing.M) {
	if address := os.Getenv(clientEnv); address != "" {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			panic(err)
		}
		go func() { _, _ = io.Copy(connection, os.Stdin) }()
		_, err = io.Copy(os.Stdout, connection)
		fmt.Println("end:", err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// echo is a server that answers each line with itself, and tells what it has received.
func echo(t *testing.T) (address string, received chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	received = make(chan string, 100)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				for lines := bufio.NewScanner(connection); lines.Scan(); {
					received <- lines.Text()
					if _, err := fmt.Fprintln(connection, lines.Text()); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String(), received
}

// peer is one end of a conversation.
type peer struct {
	t     *testing.T
	to    io.Writer
	lines chan string
}

func newPeer(t *testing.T, to io.Writer, from io.Reader) *peer {
	p := &peer{t: t, to: to, lines: make(chan string, 100)}
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(from); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	return p
}

// dial opens a connection of this process.
func dial(t *testing.T, address string) (*peer, net.Conn) {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return newPeer(t, connection, connection), connection
}

func (p *peer) send(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.to, line); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) expect(want string) {
	p.t.Helper()
	expect(p.t, p.lines, want)
}

func expect(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	select {
	case line := <-lines:
		if line != want {
			t.Fatalf("received %q, want %q", line, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("did not receive %q", want)
	}
}

// expectNothing gives bytes some time to arrive that must not. It cannot fail without a fault, however slow the machine is.
func expectNothing(t *testing.T, lines <-chan string) {
	t.Helper()
	select {
	case line := <-lines:
		t.Fatalf("received %q during a fault", line)
	case <-time.After(50 * time.Millisecond):
	}
}

// network returns a network with one server, and a client in this process and one in another.
func network(t *testing.T) (n *Network, server string, received chan string, self, other *peer) {
	t.Helper()
	pids := map[int]string{os.Getpid(): "self"}
	n = New(Processes(func() map[int]string { return pids }))
	t.Cleanup(n.Close)
	server, err := n.Listen("server")
	if err != nil {
		t.Fatal(err)
	}
	address, received := echo(t)
	n.Lead("server", address)

	input, begin := io.Pipe()
	t.Cleanup(func() { begin.Close() })
	child := exec.Command(os.Args[0])
	child.Env, child.Stdin = append(os.Environ(), clientEnv+"="+server), input
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); begin.Close(); _ = child.Wait() })
	other = newPeer(t, begin, output)
	other.send("from another process, unknown as yet")
	other.expect("from another process, unknown as yet")
	<-received
	if got := n.Clients("server"); !slices.Equal(got, []string{""}) {
		t.Fatalf("clients are %q", got)
	}
	self, _ = dial(t, server)
	self.send("from this process")
	self.expect("from this process")
	<-received
	if got := n.Clients("server"); !slices.Equal(got, []string{"", "self"}) {
		t.Fatalf("clients are %q", got)
	}
	return n, server, received, self, other
}

func TestFaults(t *testing.T) {
	n, server, received, self, other := network(t)
	link := Link{"self", "server"}

	t.Run("Blackhole", func(t *testing.T) {
		impatient, connection := dial(t, server)
		impatient.send("early")
		impatient.expect("early")
		expect(t, received, "early")
		n.Set(link, Fault{Mode: Blackhole})
		self.send("held")
		impatient.send("held too")
		connection.Close() // the client gives up
		fresh, _ := dial(t, server)
		fresh.send("from a new connection")
		expectNothing(t, received)
		other.send("other")
		other.expect("other")
		expect(t, received, "other")
		n.Heal()
		self.expect("held")
		fresh.expect("from a new connection")
		got := []string{<-received, <-received, <-received}
		slices.Sort(got)
		if !slices.Equal(got, []string{"from a new connection", "held", "held too"}) {
			t.Errorf("the server received %q", got)
		}
	})
	t.Run("Mute", func(t *testing.T) {
		n.Set(link, Fault{Mode: Mute})
		self.send("unanswered")
		expect(t, received, "unanswered")
		expectNothing(t, self.lines)
		n.Set(link, Fault{Mode: Pass})
		self.expect("unanswered")
	})
	t.Run("Delay", func(t *testing.T) {
		const by = 100 * time.Millisecond
		n.Set(link, Fault{Mode: Delay, Delay: by})
		began := time.Now()
		self.send("late")
		self.expect("late")
		if took := time.Since(began); took < 2*by {
			t.Errorf("the answer took %v, want at least %v in each direction", took, by)
		}
		<-received
		n.Heal()
	})
	t.Run("Refuse", func(t *testing.T) {
		n.Set(link, Fault{Mode: Refuse})
		if line, open := <-self.lines; open {
			t.Errorf("received %q from a connection that was reset", line)
		}
		connection, err := net.Dial("tcp", server)
		if err == nil {
			defer connection.Close()
			_, err = connection.Read(make([]byte, 1))
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a new connection is not reset: %v", err)
		}
		other.send("not refused")
		other.expect("not refused")
		<-received
		n.Heal()
		again, _ := dial(t, server)
		again.send("again")
		again.expect("again")
	})
}
