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

// stubborn is an API server that answers pings, keeps its streams going, and may leave the requests of one connection without an answer.
type stubborn struct {
	hangs atomic.Pointer[string] // the address of a client whose requests hang
	say   chan string            // what is written to streams
}

// ServeHTTP answers with the address of the client, which tells its connections apart.
func (s *stubborn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/stream" {
		_ = http.NewResponseController(w).Flush() // or the client waits for the first word
		for word := range s.say {
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

// serveStubborn starts one, and returns the only connection to it.
func serveStubborn(t *testing.T, name string) (*stubborn, *Upstream) {
	t.Helper()
	s := &stubborn{say: make(chan string)}
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

// patience is for requests that are answered. Those that are not are given little, as their number is what counts.
const patience = time.Minute

func ask(t *testing.T, u *Upstream, path string, within time.Duration) (*http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	return u.RoundTrip((&http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}, Header: http.Header{}}).WithContext(ctx))
}

// connection returns which connection a request took.
func connection(t *testing.T, u *Upstream) string {
	t.Helper()
	response, err := ask(t, u, "/", patience)
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

// strike sends requests that are not answered.
func strike(t *testing.T, u *Upstream, times int) {
	t.Helper()
	for range times {
		if response, err := ask(t, u, "/", 10*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			if err == nil {
				response.Body.Close()
			}
			t.Fatalf("a request that hangs: %v", err)
		}
	}
}

// TestSilentConnection meets an API server that hangs, though its connection lives. Requests go on over another one, and what works on
// the old one is left to end by itself.
func TestSilentConnection(t *testing.T) {
	s, upstream := serveStubborn(t, "silent")
	before := resets(t, "silent")
	first := connection(t, upstream)
	stream, err := ask(t, upstream, "/stream", patience)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	words := bufio.NewReader(stream.Body)
	s.hears(t, words, "before")

	s.hangs.Store(&first)
	strike(t, upstream, strikes)
	second := connection(t, upstream)
	if second == first {
		t.Fatal("requests still take the connection on which nothing is answered")
	}
	s.hears(t, words, "after")
	for range 2 * strikes {
		if again := connection(t, upstream); again != second {
			t.Fatal("a connection that works was replaced")
		}
	}
	if given := resets(t, "silent") - before; given != 1 {
		t.Errorf("%v connections were given up, want one", given)
	}

	close(s.say)
	if rest, err := io.ReadAll(words); err != nil || len(rest) > 0 {
		t.Errorf("the stream on the old connection ends with %q, %v", rest, err)
	}
}

// TestSlowConnection has requests time out now and then. As long as others are answered between them, the connection stays.
func TestSlowConnection(t *testing.T) {
	s, upstream := serveStubborn(t, "slow")
	before := resets(t, "slow")
	first := connection(t, upstream)
	for range 3 {
		s.hangs.Store(&first)
		strike(t, upstream, strikes-1)
		s.hangs.Store(nil)
		if again := connection(t, upstream); again != first {
			t.Fatal("a connection on which requests are answered was replaced")
		}
	}
	if given := resets(t, "slow") - before; given != 0 {
		t.Errorf("%v connections were given up", given)
	}
}

// hears checks that what the server says arrives.
func (s *stubborn) hears(t *testing.T, stream *bufio.Reader, word string) {
	t.Helper()
	s.say <- word
	if heard, err := stream.ReadString('\n'); err != nil || heard != word+"\n" {
		t.Fatalf("the stream says %q, %v, want %s", heard, err, word)
	}
}

// resets returns how many connections were given up.
func resets(t *testing.T, name string) float64 {
	t.Helper()
	count, err := testutil.GetCounterMetricValue(connectionResets.WithLabelValues(name))
	if err != nil {
		t.Fatal(err)
	}
	return count
}
