package fleet

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/component-base/metrics/testutil"

	"github.com/cellplane/cellplane/internal/pki"
)

// hangingServer is an API server that answers pings and serves streams, but may not answer the other requests of one connection.
type hangingServer struct {
	hangs atomic.Pointer[string] // the address of a client whose requests hang
	words chan string            // written to streams
}

// ServeHTTP answers with the address of the client, which identifies the connection.
func (s *hangingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/stream" {
		_ = http.NewResponseController(w).Flush() // the client waits for the headers
		for word := range s.words {
			_, _ = io.WriteString(w, word+"\n")
			_ = http.NewResponseController(w).Flush()
		}
		return
	}
	if hangs := s.hangs.Load(); hangs != nil && *hangs == r.RemoteAddr {
		<-r.Context().Done()
		return
	}
	_, _ = io.WriteString(w, r.RemoteAddr)
}

// startHanging returns a server and an upstream with one connection to it.
func startHanging(t *testing.T, name string) (*hangingServer, *Upstream) {
	t.Helper()
	s := &hangingServer{words: make(chan string)}
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	authority, err := pki.EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Ensure(dir, "gateway", pki.Leaf{CommonName: "gateway"})
	if err != nil {
		t.Fatal(err)
	}
	endpoint := Endpoint{Server: server.URL, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	for file, into := range map[string]*[]byte{pair.CertFile: &endpoint.Cert, pair.KeyFile: &endpoint.Key} {
		if *into, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	upstream, err := NewUpstream(name, endpoint, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(upstream.Close)
	return s, upstream
}

// timeout is for requests that are answered.
const timeout = time.Minute

func ask(t *testing.T, u *Upstream, path string, within time.Duration) (*http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	return u.RoundTrip((&http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}, Header: http.Header{}}).WithContext(ctx))
}

// addressOf returns the client address of the connection that a request takes.
func addressOf(t *testing.T, u *Upstream) string {
	t.Helper()
	response, err := ask(t, u, "/", timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	address, err := io.ReadAll(response.Body)
	if err != nil || response.ProtoMajor != 2 {
		t.Fatalf("answered over HTTP/%d: %v", response.ProtoMajor, err)
	}
	return string(address)
}

// timeOut sends requests that are not answered.
func timeOut(t *testing.T, u *Upstream, times int) {
	t.Helper()
	for range times {
		if response, err := ask(t, u, "/", 10*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			if err == nil {
				response.Body.Close()
			}
			t.Fatalf("a request to a hanging server: %v", err)
		}
	}
}

// TestHangingConnection has an API server that hangs while its connection lives. New requests use another connection; a stream on the old
// one continues.
func TestHangingConnection(t *testing.T) {
	s, upstream := startHanging(t, "silent")
	before := resets(t, "silent")
	first := addressOf(t, upstream)
	stream, err := ask(t, upstream, "/stream", timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	words := bufio.NewReader(stream.Body)
	s.sends(t, words, "before")

	s.hangs.Store(&first)
	timeOut(t, upstream, maxTimeouts)
	second := addressOf(t, upstream)
	if second == first {
		t.Fatal("requests still use the connection on which nothing is answered")
	}
	s.sends(t, words, "after")
	for range 2 * maxTimeouts {
		if again := addressOf(t, upstream); again != second {
			t.Fatal("a healthy connection was replaced")
		}
	}
	if replaced := resets(t, "silent") - before; replaced != 1 {
		t.Errorf("%v connections were replaced, want one", replaced)
	}

	close(s.words)
	if rest, err := io.ReadAll(words); err != nil || len(rest) > 0 {
		t.Errorf("the stream on the old connection ended with %q, %v", rest, err)
	}
}

// TestSlowConnection has some requests time out. The connection stays while others are answered in between.
func TestSlowConnection(t *testing.T) {
	s, upstream := startHanging(t, "slow")
	before := resets(t, "slow")
	first := addressOf(t, upstream)
	for range 3 {
		s.hangs.Store(&first)
		timeOut(t, upstream, maxTimeouts-1)
		s.hangs.Store(nil)
		if again := addressOf(t, upstream); again != first {
			t.Fatal("a connection on which requests are answered was replaced")
		}
	}
	if replaced := resets(t, "slow") - before; replaced != 0 {
		t.Errorf("%v connections were replaced", replaced)
	}
}

// sends checks that a word of the server arrives.
func (s *hangingServer) sends(t *testing.T, stream *bufio.Reader, word string) {
	t.Helper()
	s.words <- word
	if got, err := stream.ReadString('\n'); err != nil || got != word+"\n" {
		t.Fatalf("the stream has %q, %v, want %s", got, err, word)
	}
}

// resets returns how many connections were replaced.
func resets(t *testing.T, name string) float64 {
	t.Helper()
	count, err := testutil.GetCounterMetricValue(connectionResets.WithLabelValues(name))
	if err != nil {
		t.Fatal(err)
	}
	return count
}
