package router

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/samples"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/sharedwatch"
)

// watchedCell is a cell whose events a test decides. It serves watches of any namespace from its log.
type watchedCell struct {
	mu      sync.Mutex
	changed chan struct{}
	log     []string // JSON events; the first has revision 101
	opened  []string // the user, the namespace and the query of each watch
}

const firstRevision = 101

func (c *watchedCell) add(name, data string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, fmt.Sprintf(`{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"default","uid":%q,"resourceVersion":"%d"},"data":{"x":%q}}}`,
		name, name, firstRevision+len(c.log), data))
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

func (c *watchedCell) since(at int) ([]string, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at < len(c.log) {
		return c.log[at:], nil
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return nil, c.changed
}

// ServeHTTP serves watches from a revision.
func (c *watchedCell) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var from int
	_, _ = fmt.Sscan(r.URL.Query().Get("resourceVersion"), &from)
	c.mu.Lock()
	c.opened = append(c.opened, fmt.Sprint(r.Header.Get("X-Remote-User"), " ", r.URL.Path, " ", r.URL.Query().Get("labelSelector")))
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for at := max(from-firstRevision+1, 0); ; {
		_ = http.NewResponseController(w).Flush()
		events, wait := c.since(at)
		for _, event := range events {
			_, _ = io.WriteString(w, event+"\n")
		}
		at += len(events)
		if wait == nil {
			continue
		}
		select {
		case <-wait:
		case <-r.Context().Done():
			return
		}
	}
}

func (c *watchedCell) openedBy() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.opened)
}

// recorder is a client that remembers the versions and names of its events. It does not read while it is stopped.
type recorder struct {
	mu     sync.Mutex
	begun  bool
	seen   []string
	stop   chan struct{} // nil if it reads
	header http.Header
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(int)     { r.mu.Lock(); r.begun = true; r.mu.Unlock() }
func (r *recorder) Flush()              {}
func (r *recorder) Write(b []byte) (int, error) {
	if r.stop != nil {
		<-r.stop
	}
	for line := range strings.Lines(string(b)) {
		var event struct {
			Type   string `json:"type"`
			Object struct {
				Metadata struct {
					Name            string `json:"name"`
					ResourceVersion string `json:"resourceVersion"`
				} `json:"metadata"`
			} `json:"object"`
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			return 0, err
		}
		r.mu.Lock()
		r.seen = append(r.seen, event.Type+" "+event.Object.Metadata.Name+" "+event.Object.Metadata.ResourceVersion)
		r.mu.Unlock()
	}
	return len(b), nil
}

func (r *recorder) all() (seen []string, begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen), r.begun
}

// sharing is a router with one cell, and watches through it.
type sharing struct {
	cell *watchedCell
	rt   *Router
	ctx  context.Context
	wait sync.WaitGroup
}

func newSharing(t *testing.T) *sharing {
	t.Helper()
	s := &sharing{cell: &watchedCell{}}
	s.rt = routerWithCell(t, s.cell.ServeHTTP)
	ctx, cancel := context.WithCancel(t.Context())
	s.ctx = ctx
	t.Cleanup(s.wait.Wait)
	t.Cleanup(cancel)
	return s
}

// watch begins a watch of a user, at a revision of the cell.
func (s *sharing) watch(who, namespace string, revision uint64, options string, w http.ResponseWriter) {
	at := position.Position{Epoch: 1, Versions: []uint64{revision}}
	version, _ := at.Encode() // it is valid
	info := &request.RequestInfo{IsResourceRequest: true, Verb: "watch", APIPrefix: "api", APIVersion: "v1", Namespace: namespace, Resource: "configmaps"}
	info.Path = "/api/v1/namespaces/" + namespace + "/configmaps"
	r := httptest.NewRequest(http.MethodGet, info.Path+"?watch=true&resourceVersion="+version+options, http.NoBody)
	r = r.WithContext(request.WithUser(request.WithRequestInfo(s.ctx, info), &user.DefaultInfo{Name: who}))
	s.wait.Go(func() { s.rt.ServeHTTP(w, r) })
}

func (s *sharing) record(who, namespace string, revision uint64, options string) *recorder {
	r := &recorder{header: http.Header{}}
	s.watch(who, namespace, revision, options, r)
	return r
}

// await waits until clients have seen a number of events.
func await(t *testing.T, events int, clients ...*recorder) {
	t.Helper()
	for i, client := range clients {
		var seen []string
		if !eventually(t, func() bool {
			seen, _ = client.all()
			return len(seen) >= events
		}) {
			t.Fatalf("client %d has seen %q, want %d events", i, seen, events)
		}
	}
}

// TestSharedStream checks which watches share a stream, and with whose rights it is read.
func TestSharedStream(t *testing.T) {
	s := newSharing(t)
	s.cell.add("one", "")
	first := s.record("ann", "default", firstRevision-1, "")
	await(t, 1, first)
	second, third := s.record("bob", "default", firstRevision-1, "&allowWatchBookmarks=true"), s.record("cid", "default", firstRevision, "&timeoutSeconds=600")
	await(t, 2, second) // the bookmark, too
	s.cell.add("two", "")
	await(t, 2, first)
	await(t, 4, second)
	await(t, 1, third)
	mine, _ := first.all()
	theirs, _ := second.all()
	if last, _ := third.all(); last[0] != mine[1] || theirs[0] != mine[0] || theirs[2] != mine[1] || !strings.HasPrefix(theirs[3], "BOOKMARK  100000000010") {
		t.Errorf("the watches show %q, %q and %q", mine, theirs, last)
	}
	if opened := s.cell.openedBy(); !slices.Equal(opened, []string{"system:cellplane:gateway /api/v1/namespaces/default/configmaps "}) {
		t.Errorf("the cell was watched by %q, want one watch of the gateway", opened)
	}
	for i, other := range []struct{ namespace, options string }{{"other", ""}, {"default", "&labelSelector=a%3Db"}, {"default", "&timeoutSeconds=30"}} {
		await(t, 1, s.record("ann", other.namespace, firstRevision, other.options))
		if opened := s.cell.openedBy(); len(opened) != i+2 {
			t.Errorf("watch %d reads the stream of another one: %q", i, opened)
		}
	}
	if opened := s.cell.openedBy(); !strings.HasPrefix(opened[3], "ann ") {
		t.Errorf("a short watch is that of %s", opened[3])
	}
}

// TestCatchUp has a watch begin before the history of the stream. It merges by itself until it has reached that, and then shares it.
func TestCatchUp(t *testing.T) {
	s := newSharing(t)
	s.cell.add("one", "")
	s.cell.add("two", "")
	late := s.record("late", "default", firstRevision+1, "")
	if !eventually(t, func() bool { return len(s.cell.openedBy()) == 1 }) {
		t.Fatal("the cell is not watched")
	}
	early := s.record("early", "default", firstRevision-1, "")
	await(t, 2, early)
	var readers int
	if !eventually(t, func() bool {
		s.rt.streams.mu.Lock()
		defer s.rt.streams.mu.Unlock()
		for _, st := range s.rt.streams.open {
			readers = st.readers
		}
		return readers == 2
	}) {
		t.Fatalf("the stream has %d watches, want 2", readers)
	}
	s.cell.add("three", "")
	await(t, 1, late)
	await(t, 3, early)
	mine, _ := early.all()
	theirs, _ := late.all()
	if len(mine) != 3 || len(theirs) != 1 || mine[2] != theirs[0] {
		t.Errorf("seen: %q and %q", mine, theirs)
	}
	if opened := s.cell.openedBy(); len(opened) != 2 || !strings.HasPrefix(opened[1], "early ") {
		t.Errorf("the cell was watched by %q", opened)
	}
}

// TestIssued checks that positions of lists are remembered for a while.
func TestIssued(t *testing.T) {
	var i issued
	noon := time.Now().Add(-time.Hour)
	for n := range issuedKept + 1 {
		i.note(fmt.Sprint(n), noon)
		i.note(fmt.Sprint(n), time.Now())
	}
	if at, listed := i.before("1"); !listed || !at.Equal(noon) {
		t.Errorf("issued at %v, %v", at, listed)
	}
	if at, listed := i.before("0"); listed || at.Before(noon.Add(time.Minute)) || len(i.times) != issuedKept {
		t.Errorf("of %d positions the oldest was issued at %v, %v", len(i.times), at, listed)
	}
}

// TestNoteWrite checks what is remembered of answers to writes.
func TestNoteWrite(t *testing.T) {
	rt := routerWithCell(t, func(http.ResponseWriter, *http.Request) {})
	gone := `{"kind":"Status","apiVersion":"v1","status":"Success","details":{"name":"a","uid":"u"}}`
	for _, test := range []struct {
		name, verb, query, body, answer, stamped string
		made, deleted                            bool
	}{
		{name: "a creation", verb: "create", stamped: "120", made: true},
		{name: "tried only", verb: "update", query: "?dryRun=All", stamped: "120"},
		{name: "nothing changed", verb: "update", stamped: "90"},
		{name: "a deletion", verb: "delete", answer: gone, deleted: true},
		{name: "tried deletion", verb: "delete", body: `{"dryRun":["All"]}`, answer: gone},
		{name: "tried deletion in protobuf", verb: "delete", body: "k8s\x00\x2a\x03All", answer: gone},
		{name: "a deletion that has only begun", verb: "delete", answer: `{"kind":"ConfigMap","apiVersion":"v1"}`, stamped: "120", made: true},
		{name: "an answer without a version", verb: "create"},
	} {
		rt.writes, rt.samples = sharedwatch.NewWrites(10), samples.New(time.Hour)
		rt.samples.Add(rt.Topology.View().Number(0), samples.Reading{Begun: time.Now(), Ended: time.Now(), Epoch: 1, Revision: 100})
		info := &request.RequestInfo{Verb: test.verb, Namespace: "n", Name: "a", Resource: "configmaps"}
		c := &call{RequestInfo: info, view: rt.Topology.View(), placement: placement.ByName, arrived: time.Now(), stamped: test.stamped}
		rt.beginWrite(c, "a")
		rt.noteWrite(httptest.NewRequest(http.MethodPost, "/"+test.query, strings.NewReader(test.body)), c, []byte(test.answer))
		c.written.End()
		_, made := rt.writes.Of(&sharedwatch.Entry{Revision: 120, Received: time.Now()}, c.view.Number(0))
		_, deleted := rt.writes.Of(&sharedwatch.Entry{Deleted: "u", Received: time.Now()}, c.view.Number(0))
		if made != test.made || deleted != test.deleted {
			t.Errorf("%s: made %v, deleted %v", test.name, made, deleted)
		}
	}
}

// TestOutrun has a client stop reading. It holds nobody up, and misses nothing when it reads again.
func TestOutrun(t *testing.T) {
	s := newSharing(t)
	slow := &recorder{header: http.Header{}, stop: make(chan struct{})}
	s.watch("slow", "default", firstRevision-1, "", slow)
	fast := s.record("fast", "default", firstRevision-1, "")
	large := strings.Repeat("x", 200<<10)
	const events = historyBytes / (200 << 10) * 5 / 4
	for i := range events {
		s.cell.add(fmt.Sprint("large-", i), large)
	}
	await(t, events, fast)
	for key, st := range s.rt.streams.open {
		if _, bytes := st.Size(); bytes > historyBytes+300<<10 {
			t.Errorf("the history of %v has %d bytes", key, bytes)
		}
	}
	close(slow.stop)
	await(t, events, slow)
	want, _ := fast.all()
	if got, _ := slow.all(); !slices.Equal(got, want) {
		t.Errorf("the slow client has seen %q, want %q", got, want)
	}
	if opened := s.cell.openedBy(); len(opened) != 2 || !strings.HasPrefix(opened[1], "slow ") {
		t.Errorf("the cell was watched by %q; the slow client should go on by itself", opened)
	}
}

// TestFailedStream has a stream fail. Its watches go on by themselves.
func TestFailedStream(t *testing.T) {
	s := newSharing(t)
	client := s.record("ann", "default", firstRevision-1, "")
	s.cell.add("one", "")
	await(t, 1, client)
	for _, st := range s.rt.streams.open {
		st.cancel()
	}
	s.cell.add("two", "")
	await(t, 2, client)
	if seen, _ := client.all(); len(seen) != 2 || !strings.Contains(seen[1], "two") {
		t.Errorf("seen: %q", seen)
	}
}

// memoryOf returns the memory of each of many watches.
func memoryOf(t *testing.T, s *sharing, watches int, options string) (bytes uint64) {
	t.Helper()
	clients := make([]*recorder, watches)
	before := inUse()
	for i := range clients {
		clients[i] = s.record("someone", "default", firstRevision, options)
	}
	for _, client := range clients {
		if !eventually(t, func() bool {
			_, begun := client.all()
			return begun
		}) {
			t.Fatal("a watch has not begun")
		}
	}
	return (inUse() - before) / uint64(watches)
}

func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return now.HeapAlloc + now.StackInuse
}

// TestWatchMemory measures the memory of a watch, without that of its connection.
func TestWatchMemory(t *testing.T) {
	s := newSharing(t)
	s.cell.add("one", "")
	await(t, 1, s.record("first", "default", firstRevision-1, ""))
	shared := memoryOf(t, s, 1000, "")
	own := memoryOf(t, s, 200, "&timeoutSeconds=59")
	t.Logf("a watch of a shared stream needs %d bytes, one that merges a single cell itself %d", shared, own)
	if shared > 40<<10 {
		t.Errorf("a watch of a shared stream needs %d bytes, want at most 40 KB", shared)
	}
}
