package tunnel_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/cellplane/cellplane/internal/tunnel"
)

// end is a server that takes tunnels over TLS, as a cluster-gateway does.
type end struct {
	*httptest.Server
	tunnels tunnel.Tunnels
}

func newEnd(t *testing.T) *end {
	e := &end{}
	e.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != tunnel.Protocol {
			http.Error(w, "not here", http.StatusConflict)
			return
		}
		connection, err := tunnel.Take(w, tunnel.Protocol, http.Header{tunnel.EndHeader: {"one"}})
		if err != nil {
			t.Error(err)
			return
		}
		_ = e.tunnels.Serve(strings.TrimPrefix(r.URL.Path, tunnel.Path), connection)
	}))
	t.Cleanup(func() { e.tunnels.Close(); e.Close() })
	return e
}

// ask opens a connection for a tunnel of a cluster.
func (e *end) ask(t *testing.T, cluster string) io.ReadWriteCloser {
	t.Helper()
	at, err := url.Parse(e.URL + tunnel.Path + cluster)
	if err != nil {
		t.Fatal(err)
	}
	answer, connection, err := tunnel.Ask(t.Context(), e.Client().Transport, *at, tunnel.Protocol, nil)
	if err != nil || connection == nil || answer.Header.Get(tunnel.EndHeader) != "one" {
		t.Fatalf("got %v, %v", answer, err)
	}
	return connection
}

// count waits until there is a number of tunnels.
func (e *end) count(t *testing.T, want int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("there are %d tunnels", want), func() bool { return e.tunnels.Count() == want })
}

// agent opens a tunnel to a cluster. The function closes it.
func (e *end) agent(t *testing.T, cluster string, handler http.Handler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	connection, done := e.ask(t, cluster), make(chan struct{})
	go func() {
		defer close(done)
		_ = tunnel.Serve(ctx, connection, handler)
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// waitFor waits for something that another goroutine does.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within 20 s", what)
		case <-ticker.C:
		}
	}
}

// client sends requests to a cluster.
func (e *end) client(t *testing.T, cluster string) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return e.tunnels.Dial(ctx, cluster) }}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(client *http.Client, path string) (string, error) {
	response, err := client.Get("http://cluster" + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func says(what string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, what, r.URL.Path) })
}

func TestRequests(t *testing.T) {
	e := newEnd(t)
	large := strings.Repeat("0123456789abcdef", 1<<17) // more than the windows of a tunnel
	e.agent(t, "m1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo":
			_, _ = io.Copy(w, r.Body)
		case "/watch":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/upgrade":
			connection, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer connection.Close()
			fmt.Fprint(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(connection, buffered)
		}
	}))
	e.count(t, 1)
	client := e.client(t, "m1")

	response, err := client.Post("http://cluster/echo", "text/plain", strings.NewReader(large))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || string(body) != large {
		t.Errorf("%d bytes came back as %d, %v", len(large), len(body), err)
	}

	// What nobody reads must not hold up others.
	unread, err := client.Post("http://cluster/echo", "text/plain", strings.NewReader(large))
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Body.Close()
	watch, err := client.Get("http://cluster/watch")
	if err != nil {
		t.Fatalf("a watch beside a stream that is not read: %v", err)
	}
	watch.Body.Close()

	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://cluster/upgrade", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	response, err = client.Do(request)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the upgrade was answered with %v, %v", response, err)
	}
	stream := response.Body.(io.ReadWriteCloser)
	defer stream.Close()
	if _, err := io.WriteString(stream, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stream).ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("the stream returned %q, %v", line, err)
	}
}

func TestClusters(t *testing.T) {
	e := newEnd(t)
	e.agent(t, "m1", says("m1"))
	e.agent(t, "m2", says("m2"))
	e.count(t, 2)
	for _, cluster := range []string{"m1", "m2"} {
		if said, err := get(e.client(t, cluster), "/x"); err != nil || said != cluster+"/x" {
			t.Errorf("cluster %s: %q, %v", cluster, said, err)
		}
	}
	if _, err := get(e.client(t, "m3"), "/"); !errors.Is(err, tunnel.ErrNone) {
		t.Errorf("a cluster without a tunnel: %v", err)
	}
}

// One of two agents ends, or hangs: requests take the tunnel of the other.
func TestAgentDies(t *testing.T) {
	e := newEnd(t)
	e.tunnels.WithPatience(200 * time.Millisecond)
	e.agent(t, "m1", says("first"))
	e.count(t, 1)
	stop := e.agent(t, "m1", says("second"))
	e.count(t, 2)
	client := e.client(t, "m1")
	if said, err := get(client, "/"); err != nil || said != "second/" {
		t.Errorf("got %q, %v, want the newest", said, err)
	}
	stop()
	e.count(t, 1)
	client.CloseIdleConnections()
	if said, err := get(client, "/"); err != nil || said != "first/" {
		t.Errorf("got %q, %v, want the other", said, err)
	}
	_ = e.ask(t, "m1") // nobody serves this one
	e.count(t, 2)
	client.CloseIdleConnections()
	if said, err := get(client, "/"); err != nil || said != "first/" {
		t.Errorf("with a tunnel that hangs: %q, %v, want the other", said, err)
	}
}

// A stream ends with its tunnel.
func TestStreamsEnd(t *testing.T) {
	e := newEnd(t)
	began := make(chan struct{})
	stop := e.agent(t, "m1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		close(began)
		<-r.Context().Done()
	}))
	e.count(t, 1)
	response, err := e.client(t, "m1").Get("http://cluster/watch")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	<-began
	stop() // returns when the handler has
	if _, err := io.ReadAll(response.Body); err == nil {
		t.Error("the stream ended as if it were complete")
	}
}

// Agents open no connections, and only some tunnels.
func TestHostileAgent(t *testing.T) {
	e := newEnd(t)
	session, err := yamux.Server(e.ask(t, "m1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	e.count(t, 1)
	if stream, err := session.OpenStream(); err == nil {
		_ = stream.SetDeadline(time.Now().Add(time.Second))
		_, err := stream.Read(make([]byte, 1))
		if err == nil || errors.Is(err, yamux.ErrTimeout) {
			t.Errorf("the agent has opened a connection: %v", err)
		}
	}
	for range 8 {
		e.agent(t, "m1", says("later"))
	}
	waitFor(t, "the first tunnel is closed", session.IsClosed)
	e.count(t, 8)
	// One that speaks anything else is cut off, and disturbs nobody.
	connection := e.ask(t, "m2")
	_, _ = io.WriteString(connection, "GET / HTTP/1.1\r\n\r\n")
	if _, err := io.Copy(io.Discard, connection); err != nil {
		t.Errorf("the connection ended with %v", err)
	}
	e.count(t, 8)
	if said, err := get(e.client(t, "m1"), "/"); err != nil || said != "later/" {
		t.Errorf("got %q, %v", said, err)
	}
}

func TestRefusals(t *testing.T) {
	e := newEnd(t)
	at, err := url.Parse(e.URL + tunnel.Path + "m1")
	if err != nil {
		t.Fatal(err)
	}
	answer, connection, err := tunnel.Ask(t.Context(), e.Client().Transport, *at, "other", nil)
	if err != nil || connection != nil || answer.StatusCode != http.StatusConflict {
		t.Fatalf("got %v, %v", answer, err)
	}
	if said, err := io.ReadAll(answer.Body); err != nil || !bytes.Contains(said, []byte("not here")) {
		t.Errorf("the refusal says %q, %v", said, err)
	}
	e.tunnels.Close()
	if _, connection, err = tunnel.Ask(t.Context(), e.Client().Transport, *at, tunnel.Protocol, nil); err == nil {
		if _, err := io.ReadAll(connection); err != nil {
			t.Errorf("a tunnel to a closed end: %v", err)
		}
	}
	if e.tunnels.Count() != 0 {
		t.Error("a closed end has a tunnel")
	}
}
