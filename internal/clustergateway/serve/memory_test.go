package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustergateway/ingest"
	"github.com/cellplane/cellplane/internal/limits"
)

// blocked is a client that does not read the answer, and disconnects when it is released.
type blocked struct {
	header   http.Header
	code     int
	started  sync.Once
	waiting  *atomic.Int64
	released chan struct{}
}

// Header implements http.ResponseWriter.
func (b *blocked) Header() http.Header { return b.header }

// WriteHeader implements http.ResponseWriter.
func (b *blocked) WriteHeader(code int) { b.code = code }

// Flush implements http.Flusher.
func (b *blocked) Flush() {}

// Write implements io.Writer.
func (b *blocked) Write(data []byte) (int, error) {
	b.started.Do(func() { b.waiting.Add(1) })
	<-b.released
	return 0, fmt.Errorf("%d bytes were not read", len(data))
}

// noise returns text that cannot be compressed.
func noise(size int) string {
	text := make([]byte, size)
	for i := range text {
		text[i] = byte('0' + rand.IntN(64))
	}
	return string(text)
}

func liveHeap() int64 {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

const (
	megabyte = 1 << 20
	listSize = 8 * megabyte
	budget   = 64 * megabyte
	metaJSON = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	initials = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
)

// TestClientsThatDoNotRead sends lists of 8 MB and watches with their objects as initial events to 24 clients that do not read. What the server
// holds for them is bounded by the share of their user and what is not counted, whichever the form and the size of the objects. Another user
// is served meanwhile.
func TestClientsThatDoNotRead(t *testing.T) {
	for _, size := range []int{16 << 10, megabyte / 2} {
		server, store := newServer(t)
		server.Budget = limits.NewBudget(budget, time.Minute)
		feed := store.Feed("m1")
		for i := range listSize / size {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprint("web-", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: "1", Annotations: map[string]string{"noise": noise(size)},
			}}
			if err := feed.ApplyObject(pod); err != nil {
				t.Fatal(err)
			}
		}
		for name, form := range map[string]struct{ query, accept string }{
			"JSON":                 {"", "application/json"},
			"pretty JSON":          {"?pretty=true", "application/json"},
			"YAML":                 {"", "application/yaml"},
			"protobuf":             {"", "application/vnd.kubernetes.protobuf"},
			"metadata":             {"", metaJSON},
			"metadata in protobuf": {"", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"},
			"table":                {"?includeObject=Object", "application/json;as=Table;g=meta.k8s.io;v=v1"},
			"table in YAML":        {"", "application/yaml;as=Table;g=meta.k8s.io;v=v1"},
			"watch":                {initials, "application/json"},
			"watch in protobuf":    {initials, "application/vnd.kubernetes.protobuf"},
		} {
			t.Run(fmt.Sprintf("%s of %d", name, size), func(t *testing.T) { clientsThatDoNotRead(t, server, form.query, form.accept) })
		}
	}
}

func clientsThatDoNotRead(t *testing.T, server *Server, query, accept string) {
	const clients = 24
	const bound = budget/4 + textCopies*megabyte*5/4 + clients*limits.Free*textCopies
	var waiting atomic.Int64
	var ended sync.WaitGroup
	released := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	before := liveHeap()
	for range clients {
		ended.Go(func() {
			defer func() { _ = recover() }() // the answer was aborted
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/namespaces/default/pods"+query, http.NoBody)
			r.Header.Set("Accept", accept)
			r.Header.Set("X-Remote-User", "alice")
			server.ServeHTTP(&blocked{header: http.Header{}, waiting: &waiting, released: released}, r)
		})
	}
	settled := func() bool { return int(waiting.Load())+server.Budget.Usage().Waiting >= clients }
	if wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) { return settled(), nil }) != nil {
		t.Fatalf("%d of %d clients have an answer", waiting.Load(), clients)
	}
	if held := liveHeap() - before; held > bound {
		t.Errorf("%d MiB are held for %d clients, want at most %d", held/megabyte, clients, bound/megabyte)
	} else {
		t.Logf("%.1f MiB are held for %d clients", float64(held)/megabyte, clients)
	}
	if answer := ask(t, server, "/api/v1/namespaces/default/pods/web-0", "X-Remote-User", "bob"); answer.Code != http.StatusOK {
		t.Errorf("another user got %d: %s", answer.Code, answer.Body)
	}
	cancel()
	close(released)
	ended.Wait()
	if used := server.Budget.Usage(); used.Held != 0 {
		t.Errorf("%d bytes are still counted", used.Held)
	}
}

// TestTextsAreTheSame compares lists that are written object by object with what is made of the whole list.
func TestTextsAreTheSame(t *testing.T) {
	server, store := newServer(t)
	feed := store.Feed("m1")
	const pods = "/api/v1/namespaces/default/pods"
	check := func() {
		t.Helper()
		for _, as := range []string{"", ";as=Table;g=meta.k8s.io;v=v1", ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"} {
			plain := ask(t, server, pods+"?limit=3", "Accept", "application/json"+as).Body.Bytes()
			for _, f := range []form{{mediaType: "application/yaml"}, {mediaType: "application/json", pretty: true}} {
				want, err := (&encoder{form: f}).dress(plain)
				if err != nil {
					t.Fatal(err)
				}
				if got := ask(t, server, pods+fmt.Sprintf("?limit=3&pretty=%v", f.pretty), "Accept", f.mediaType+as).Body.String(); got != string(want) {
					t.Errorf("%s%s: got\n%s\nwant\n%s", f.mediaType, as, got, want)
				}
			}
		}
	}
	check()
	for i, text := range []string{"plain", "a\n\nb\n", "\n  x\n\n", "- a\n- b: |\n    c\n\n\n", strings.Repeat("long words ", 40), "tab\there", "\u2028", ""} {
		if err := feed.ApplyObject(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprint("web-", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: "1", Annotations: map[string]string{"text": text, text: "x"},
		}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Args: []string{text, "next"}}}}}); err != nil {
			t.Fatal(err)
		}
		check()
	}
}

// TestProtobufLists decodes the lists that are not cached in the form the client wants.
func TestProtobufLists(t *testing.T) {
	server, store := newServer(t)
	feed := store.Feed("m1")
	for i := range 200 {
		applyPod(t, feed, fmt.Sprintf("web-%03d", i), 1)
	}
	answer := ask(t, server, "/api/v1/pods?limit=150", "Accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	body, ok := bytes.CutPrefix(answer.Body.Bytes(), []byte("k8s\x00"))
	var envelope kuberuntime.Unknown
	if err := envelope.Unmarshal(body); !ok || err != nil || envelope.Kind != "PartialObjectMetadataList" {
		t.Fatalf("got %d, a %s: %v", answer.Code, envelope.Kind, err)
	}
	var list metav1.PartialObjectMetadataList
	if err := list.Unmarshal(envelope.Raw); err != nil || len(list.Items) != 150 || list.Items[149].Name != "web-149" || list.Continue == "" {
		t.Errorf("got %d items and %+v: %v", len(list.Items), list.ListMeta, err)
	}
}

// TestWatchesOfAUser opens as many watches as a user may have.
func TestWatchesOfAUser(t *testing.T) {
	server, _ := newServer(t)
	server.Streams = limits.NewStreams(2)
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	for range 2 {
		ended.Go(func() {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/pods?watch=1", http.NoBody)
			r.Header.Set("X-Remote-User", "alice")
			server.ServeHTTP(httptest.NewRecorder(), r)
		})
	}
	if wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return server.Streams.Of("alice") == 2, nil }) != nil {
		t.Fatal("the watches did not begin")
	}
	const watch = "/api/v1/pods?watch=1&timeoutSeconds=1"
	if answer := ask(t, server, watch, "X-Remote-User", "alice"); answer.Code != http.StatusTooManyRequests || !strings.Contains(answer.Body.String(), "as many watches") {
		t.Errorf("a third watch: %d %s", answer.Code, answer.Body)
	}
	for name, header := range map[string][]string{
		"another user": {"X-Remote-User", "bob"}, "an administrator": {"X-Remote-User", "alice", "X-Remote-Group", "system:masters"}, "the gateway": nil,
	} {
		if answer := ask(t, server, watch, header...); answer.Code != http.StatusOK {
			t.Errorf("%s: %d %s", name, answer.Code, answer.Body)
		}
	}
	cancel()
	ended.Wait()
	if server.Streams.Of("alice") != 0 {
		t.Error("watches that have ended are counted")
	}
}

// largeMembers answer requests for metrics with a list of some size.
type largeMembers struct {
	target ingest.Target
	count  int
}

func (m largeMembers) Names() []string {
	all := make([]string, m.count)
	for i := range all {
		all[i] = fmt.Sprint("m", i)
	}
	return all
}

func (m largeMembers) Client(string) (ingest.Target, bool) { return m.target, true }

// TestMetricsAreBounded asks for the metrics of members, 4 MB in all, with many clients that do not read. What is held is bounded, and the
// client that reads gets all metrics.
func TestMetricsAreBounded(t *testing.T) {
	var body bytes.Buffer
	body.WriteString(`{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[`)
	for i := range 1000 {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"metadata":{"name":"p-%d","namespace":"default","labels":{"noise":"%s"}},"timestamp":"2026-01-01T00:00:00Z","containers":[]}`, i, strings.Repeat("x", 1000))
	}
	body.WriteString("]}")
	server, _ := newServer(t)
	server.Budget = limits.NewBudget(budget, time.Minute)
	member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body.Bytes()) }))
	defer member.Close()
	base, err := url.Parse(member.URL)
	if err != nil {
		t.Fatal(err)
	}
	server.Metrics = NewMetrics(largeMembers{ingest.Target{Client: member.Client(), Base: base}, 4})
	var waiting atomic.Int64
	var ended sync.WaitGroup
	released := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	const path, clients = "/apis/metrics.k8s.io/v1beta1/pods", 24
	before := liveHeap()
	for range clients {
		ended.Go(func() {
			defer func() { _ = recover() }()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
			r.Header.Set("X-Remote-User", "alice")
			server.ServeHTTP(&blocked{header: http.Header{}, waiting: &waiting, released: released}, r)
		})
	}
	if wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		return waiting.Load() > 0 && server.Budget.Usage().Waiting > 0, nil
	}) != nil {
		t.Fatalf("%d clients have an answer and %d wait for memory", waiting.Load(), server.Budget.Usage().Waiting)
	}
	if held := liveHeap() - before; held > 2*budget {
		t.Errorf("%d MiB are held", held/megabyte)
	}
	answer := ask(t, server, path, "X-Remote-User", "bob")
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil || len(list.Items) != 1000 || list.Items[7].Annotations[names.ClusterAnnotation] != "m0" {
		t.Errorf("another user got %d with %d items: %v", answer.Code, len(list.Items), err)
	}
	cancel()
	close(released)
	ended.Wait()
	if used := server.Budget.Usage(); used.Held != 0 || used.Most > budget {
		t.Errorf("at the end: %+v", used)
	}
}
