package router

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/pki"
)

// A compromised cell may answer anything. It must not bring the gateway down.

const megabyte = 1 << 20

// routerWithCell returns a router whose only cell is a handler.
func routerWithCell(t *testing.T, cell http.HandlerFunc) *Router {
	t.Helper()
	return routerWithWholeCell(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.RawQuery == confirmURL.RawQuery { // the confirmation of the epoch
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "{}")
			return
		}
		cell(w, r)
	}))
}

// routerWithWholeCell returns a router with one cell, which serves all requests.
func routerWithWholeCell(t *testing.T, cell http.Handler) *Router {
	t.Helper()
	tracker := topology.NewTracker(topology.Static{Epoch: 1, Cells: []topology.Cell{{Name: "cell-a", Weight: 1, Endpoint: served(t, cell)}}}, &fleet.Cells{}, "")
	go func() { _ = tracker.Run(t.Context()) }() // a static source does not fail
	<-tracker.Known()
	return New(Router{Topology: tracker})
}

// served serves a cell until the test ends.
func served(t *testing.T, cell http.Handler) fleet.Endpoint {
	t.Helper()
	server := httptest.NewUnstartedServer(cell)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	dir := t.TempDir()
	authority, err := pki.EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Ensure(dir, "gateway", pki.Leaf{CommonName: "gateway"})
	if err != nil {
		t.Fatal(err)
	}
	endpoint := fleet.Endpoint{Server: server.URL, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	for file, into := range map[string]*[]byte{pair.CertFile: &endpoint.Cert, pair.KeyFile: &endpoint.Key} {
		if *into, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	return endpoint
}

// counter is a client that discards everything it reads.
type counter struct {
	header http.Header
	code   int
	bytes  int
	each   func(total int)
}

func (c *counter) Header() http.Header  { return c.header }
func (c *counter) WriteHeader(code int) { c.code = code }
func (c *counter) Write(b []byte) (int, error) {
	c.bytes += len(b)
	if c.each != nil {
		c.each(c.bytes)
	}
	return len(b), nil
}

// ask sends a request of a user through the router. It reports whether the answer was aborted.
func ask(ctx context.Context, rt *Router, verb, name, accept string, w http.ResponseWriter) (aborted bool) {
	info := &request.RequestInfo{IsResourceRequest: true, Verb: verb, APIPrefix: "api", APIVersion: "v1", Namespace: "default", Resource: "configmaps", Name: name}
	info.Path = strings.TrimSuffix("/api/v1/namespaces/default/configmaps/"+name, "/")
	r := httptest.NewRequest(http.MethodGet, info.Path, http.NoBody)
	r.Header.Set("Accept", accept)
	defer func() {
		if problem := recover(); problem != nil {
			if err, ok := problem.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(problem)
			}
			aborted = true
		}
	}()
	rt.ServeHTTP(w, r.WithContext(request.WithUser(request.WithRequestInfo(ctx, info), &user.DefaultInfo{Name: "someone"})))
	return false
}

// endlessly writes the same text until the connection is closed.
func endlessly(w io.Writer, what string) {
	chunk := []byte(strings.Repeat(what, 1+64<<10/len(what)))
	for {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

const (
	listHead  = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`
	protoType = "application/vnd.kubernetes.protobuf"
)

// TestHostileCell checks endless answers, wrong lengths and decompression bombs.
func TestHostileCell(t *testing.T) {
	var bomb bytes.Buffer
	compressor := gzip.NewWriter(&bomb)
	for range 256 {
		if _, err := compressor.Write(make([]byte, megabyte)); err != nil {
			t.Fatal(err)
		}
	}
	if err := compressor.Close(); err != nil {
		t.Fatal(err)
	}
	compressed := func(contentType string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		}
	}
	endless := func(contentType, head, rest string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = io.WriteString(w, head)
			endlessly(w, rest)
		}
	}
	wrongLength := func(contentType string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Content-Length", fmt.Sprint(int64(1)<<50))
			_, _ = io.WriteString(w, "{")
			panic(http.ErrAbortHandler)
		}
	}
	for _, test := range []struct {
		name, verb, object, accept string
		cell                       http.HandlerFunc
	}{
		{"compressed list", "list", "", "application/json", compressed("application/json")},
		{"compressed list in protobuf", "list", "", protoType, compressed(protoType)},
		{"compressed object", "get", "x", "application/json", compressed("application/json")},
		{"endless object", "get", "x", "application/json", endless("application/json", `{"data":{"x":"`, "x")},
		{"endless object in a list", "list", "", "application/json", endless("application/json", listHead+`{"metadata":{"name":"x"},"data":{"x":"`, "x")},
		{"endless list in protobuf", "list", "", protoType, endless(protoType, "k8s\x00", "\x0a\x02v1")},
		{"endless spaces before a list", "list", "", "application/json", endless("application/json", "", " ")},
		{"wrong length of an object", "get", "x", "application/json", wrongLength("application/json")},
		{"wrong length of a list", "list", "", protoType, wrongLength(protoType)},
	} {
		t.Run(test.name, func(t *testing.T) {
			rt := routerWithCell(t, test.cell)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			w := &counter{header: http.Header{}}
			aborted := ask(ctx, rt, test.verb, test.object, test.accept, w)
			runtime.ReadMemStats(&after)
			if taken := (after.TotalAlloc - before.TotalAlloc) / megabyte; taken > 256 {
				t.Errorf("%d MiB were allocated", taken)
			}
			if !aborted && w.code < http.StatusInternalServerError {
				t.Errorf("got %d with %d bytes", w.code, w.bytes)
			}
		})
	}
}

// TestEndlessList checks that a list of any length is streamed without buffering, and ends when the client disconnects.
func TestEndlessList(t *testing.T) {
	rt := routerWithCell(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, listHead)
		item := `{"metadata":{"name":"m-%09d","namespace":"default","resourceVersion":"1"},"data":{"x":"` + strings.Repeat("x", 4096) + `"}}`
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(w, item+",", i); err != nil {
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var most uint64
	next := 8 * megabyte
	w := &counter{header: http.Header{}, each: func(total int) {
		if total < next {
			return
		}
		next += 8 * megabyte
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		most = max(most, now.HeapAlloc)
		if total > 64*megabyte {
			cancel()
		}
	}}
	if !ask(ctx, rt, "list", "", "application/json", w) {
		t.Error("an endless list was completed")
	}
	if w.bytes < 64*megabyte || most > 40*megabyte {
		t.Errorf("while %d MiB were forwarded, up to %d MiB were in memory", w.bytes/megabyte, most/megabyte)
	}
}
