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

// A cell that has fallen into wrong hands may answer anything. It must not take the gateway with it.

const megabyte = 1 << 20

// routerBefore returns a router whose only cell is a handler.
func routerBefore(t *testing.T, cell http.HandlerFunc) *Router {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost { // whether the map is in force
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "{}")
			return
		}
		cell(w, r)
	}))
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
	tracker := topology.NewTracker(topology.Static{Epoch: 1, Cells: []topology.Cell{{Name: "cell-a", Weight: 1, Endpoint: endpoint}}}, &fleet.Cells{}, "")
	go func() { _ = tracker.Run(t.Context()) }() // a static source does not fail
	<-tracker.Known()
	rt := New(Router{Topology: tracker})
	rt.maxList = 8 * megabyte
	return rt
}

// counter is a client that takes everything and keeps nothing.
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

// ask sends a request of a user through the router. It reports whether the answer was broken off.
func ask(ctx context.Context, rt *Router, verb, name, accept string, w http.ResponseWriter) (broken bool) {
	info := &request.RequestInfo{IsResourceRequest: true, Verb: verb, APIPrefix: "api", APIVersion: "v1", Namespace: "default", Resource: "configmaps", Name: name}
	info.Path = strings.TrimSuffix("/api/v1/namespaces/default/configmaps/"+name, "/")
	r := httptest.NewRequest(http.MethodGet, info.Path, http.NoBody)
	r.Header.Set("Accept", accept)
	defer func() {
		if problem := recover(); problem != nil {
			if err, ok := problem.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(problem)
			}
			broken = true
		}
	}()
	rt.ServeHTTP(w, r.WithContext(request.WithUser(request.WithRequestInfo(ctx, info), &user.DefaultInfo{Name: "someone"})))
	return false
}

// endlessly writes the same until nobody reads.
func endlessly(w io.Writer, what string) {
	chunk := []byte(strings.Repeat(what, 1+64<<10/len(what)))
	for {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

const (
	listHead = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`
	protoSay = "application/vnd.kubernetes.protobuf"
)

// TestHostileCell shows what is made of answers without an end, of lengths that are not true, and of what grows when it is unpacked.
func TestHostileCell(t *testing.T) {
	var bomb bytes.Buffer
	packer := gzip.NewWriter(&bomb)
	for range 256 {
		if _, err := packer.Write(make([]byte, megabyte)); err != nil {
			t.Fatal(err)
		}
	}
	if err := packer.Close(); err != nil {
		t.Fatal(err)
	}
	packed := func(contentType string) http.HandlerFunc {
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
	lying := func(contentType string) http.HandlerFunc {
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
		passed                     bool // its bytes are passed on as they are
	}{
		{"packed list", "list", "", "application/json", packed("application/json"), false},
		{"packed list in protobuf", "list", "", protoSay, packed(protoSay), false},
		{"packed object", "get", "x", "application/json", packed("application/json"), true},
		{"endless object", "get", "x", "application/json", endless("application/json", `{"data":{"x":"`, "x"), false},
		{"endless object in a list", "list", "", "application/json", endless("application/json", listHead+`{"metadata":{"name":"x"},"data":{"x":"`, "x"), false},
		{"endless list in protobuf", "list", "", protoSay, endless(protoSay, "k8s\x00", "\x0a\x02v1"), false},
		{"endless blanks before a list", "list", "", "application/json", endless("application/json", "", " "), false},
		{"untrue length of an object", "get", "x", "application/json", lying("application/json"), false},
		{"untrue length of a list", "list", "", protoSay, lying(protoSay), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			rt := routerBefore(t, test.cell)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			w := &counter{header: http.Header{}}
			broken := ask(ctx, rt, test.verb, test.object, test.accept, w)
			runtime.ReadMemStats(&after)
			if taken := (after.TotalAlloc - before.TotalAlloc) / megabyte; taken > 256 {
				t.Errorf("%d MiB were allocated for it", taken)
			}
			switch {
			case test.passed && (w.code != http.StatusOK || w.bytes != bomb.Len()):
				t.Errorf("got %d with %d bytes, want the %d of the cell", w.code, w.bytes, bomb.Len())
			case !test.passed && !broken && w.code < http.StatusInternalServerError:
				t.Errorf("got %d with %d bytes", w.code, w.bytes)
			}
		})
	}
}

// TestEndlessList shows that a list of any length is passed on without being held, and ends with its client.
func TestEndlessList(t *testing.T) {
	rt := routerBefore(t, func(w http.ResponseWriter, _ *http.Request) {
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
		t.Error("a list without an end was ended as if it had one")
	}
	if w.bytes < 64*megabyte || most > 40*megabyte {
		t.Errorf("of %d MiB that were passed on, up to %d MiB were held", w.bytes/megabyte, most/megabyte)
	}
}
