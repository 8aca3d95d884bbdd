package router

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/limits"
)

// blocked is a client that does not read beyond the header until it is released.
type blocked struct {
	counter
	waiting  *atomic.Int64
	released chan struct{}
	once     sync.Once
}

func (b *blocked) Write(data []byte) (int, error) {
	b.once.Do(func() { b.waiting.Add(1) })
	<-b.released
	return b.counter.Write(data)
}

// Flush implements http.Flusher.
func (b *blocked) Flush() {}

// crowd sends the same request of a user many times. Nobody reads the answers.
type crowd struct {
	budget   *limits.Budget
	waiting  atomic.Int64
	released chan struct{}
	ended    sync.WaitGroup
	codes    sync.Map // by number
}

// newCrowd returns a crowd whose requests wait for memory longer than the tests wait for anything.
func newCrowd(size int64) *crowd {
	return &crowd{budget: limits.NewBudget(size, 10*time.Minute), released: make(chan struct{})}
}

func (c *crowd) send(ctx context.Context, rt *Router, who string, count int, newRequest func() (*request.RequestInfo, *http.Request)) {
	for i := range count {
		c.ended.Go(func() {
			info, r := newRequest()
			grant := c.budget.Open(limits.Owner{Name: who})
			defer grant.Close()
			w := &blocked{counter: counter{header: http.Header{}}, waiting: &c.waiting, released: c.released}
			defer func() {
				_ = recover() // the answer was aborted
				c.codes.Store(fmt.Sprint(who, i), w.code)
			}()
			ctx := request.WithUser(request.WithRequestInfo(limits.WithGrant(ctx, grant), info), &user.DefaultInfo{Name: who})
			rt.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// settled waits until a number of requests wait for their clients or for memory.
func (c *crowd) settled(t *testing.T, count int) limits.Usage {
	t.Helper()
	var used limits.Usage
	if !eventually(t, func() bool {
		used = c.budget.Usage()
		return int(c.waiting.Load())+used.Waiting >= count
	}) {
		t.Fatalf("%d requests wait for their clients and %d for memory, want %d", c.waiting.Load(), used.Waiting, count)
	}
	return used
}

// eventually waits until a condition holds, and reports whether it does. The bound is far above what a loaded machine needs.
func eventually(t *testing.T, holds func() bool) bool {
	t.Helper()
	return wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) { return holds(), nil }) == nil
}

func live() uint64 {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return now.HeapAlloc
}

func collectionRequest(verb, query, accept string) func() (*request.RequestInfo, *http.Request) {
	return func() (*request.RequestInfo, *http.Request) {
		info := &request.RequestInfo{IsResourceRequest: true, Verb: verb, APIPrefix: "api", APIVersion: "v1", Namespace: "default", Resource: "configmaps", Path: "/api/v1/namespaces/default/configmaps"}
		r, _ := http.NewRequest(http.MethodGet, info.Path+query, http.NoBody) //nolint:noctx // it gets one
		r.Header.Set("Accept", accept)
		return info, r
	}
}

// largeList returns a list of config maps in protobuf and JSON, of some megabytes.
func largeList(megabytes int) (inProtobuf, inJSON []byte) {
	list := &corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	var text strings.Builder
	text.WriteString(listHead)
	for i := range 10 * megabytes {
		list.Items = append(list.Items, corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("m-%06d", i), ResourceVersion: "1"},
			Data:       map[string]string{"x": strings.Repeat("x", megabyte/10)},
		})
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, `{"metadata":{"name":"m-%06d","namespace":"default","resourceVersion":"1"},"data":{"x":"%s"}}`, i, strings.Repeat("x", megabyte/10))
	}
	text.WriteString("]}")
	scheme := kuberuntime.NewScheme()
	_ = corev1.AddToScheme(scheme)
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(list, &out); err != nil {
		panic(err)
	}
	return out.Bytes(), []byte(text.String())
}

// TestClientsThatDoNotRead sends lists of 16 MB and watches with large events to 40 clients that do not read. The memory that they hold stays
// within the share of their user, in the budget's count and in the heap, and another user is served meanwhile.
func TestClientsThatDoNotRead(t *testing.T) {
	inProtobuf, inJSON := largeList(16)
	rt := routerWithCell(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("watch") != "":
			w.Header().Set("Content-Type", "application/json")
			for i := range 100 {
				if _, err := fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"m-%06d","namespace":"default","resourceVersion":"%d"},"data":{"x":"%s"}}}`+"\n",
					i, 8+i, strings.Repeat("x", megabyte)); err != nil {
					return
				}
			}
			<-r.Context().Done()
		case strings.Contains(r.Header.Get("Accept"), "protobuf"):
			w.Header().Set("Content-Type", protoType)
			_, _ = w.Write(inProtobuf)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(inJSON)
		}
	})
	const clients, size = 40, 128 * megabyte
	for name, newRequest := range map[string]func() (*request.RequestInfo, *http.Request){
		"lists":                        collectionRequest("list", "", "application/json"),
		"lists in protobuf":            collectionRequest("list", "", protoType),
		"lists from the watch cache":   collectionRequest("list", "?resourceVersion=0", protoType),
		"pages in protobuf":            collectionRequest("list", "?limit=100000", protoType),
		"lists in YAML":                collectionRequest("list", "", "application/yaml"),
		"watches with large events":    collectionRequest("watch", "?watch=1", "application/json"),
		"watches from the watch cache": collectionRequest("watch", "?watch=1&resourceVersion=0", "application/json"),
	} {
		t.Run(name, func(t *testing.T) {
			before := live()
			c := newCrowd(size)
			ctx, cancel := context.WithCancel(t.Context())
			c.send(ctx, rt, "mallory", clients, newRequest)
			used := c.settled(t, clients)
			// A list in YAML needs ten times its size, and the oldest request of a user gets that in any case.
			if most := int64(size/4 + 10*20*megabyte); used.Held > most || (name != "lists in YAML" && used.Held > size/4+8*megabyte) {
				t.Errorf("%d MiB are counted, want at most %d", used.Held/megabyte, most/megabyte)
			}
			if held := int64(live()) - int64(before); held > 2*size {
				t.Errorf("%d MiB are in memory, want at most %d", held/megabyte, 2*size/megabyte)
			}
			served := c.waiting.Load()
			c.send(ctx, rt, "alice", 1, collectionRequest("list", "", "application/json"))
			if !eventually(t, func() bool { return c.waiting.Load() > served }) {
				t.Error("another user waits, too")
			}
			cancel()
			close(c.released)
			c.ended.Wait()
			if used := c.budget.Usage(); used.Held != 0 || used.Waiting != 0 {
				t.Errorf("at the end: %+v", used)
			}
		})
	}
}

// TestLargeBodiesAtOnce sends 100 objects of 3 MB at once to a cell that does not answer.
func TestLargeBodiesAtOnce(t *testing.T) {
	const size = 128 * megabyte
	arrived := make(chan struct{}, 200)
	rt := routerWithCell(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			arrived <- struct{}{}
			<-r.Context().Done()
		}
	})
	var number atomic.Int64
	update := func() (*request.RequestInfo, *http.Request) {
		info := &request.RequestInfo{IsResourceRequest: true, Verb: "update", APIPrefix: "api", APIVersion: "v1", Namespace: "default", Resource: "configmaps", Name: fmt.Sprint("m-", number.Add(1))}
		info.Path = "/api/v1/namespaces/default/configmaps/" + info.Name
		body := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"%s","namespace":"default"},"data":{"x":"%s"}}`, info.Name, strings.Repeat("x", 29*megabyte/10))
		r, _ := http.NewRequest(http.MethodPut, info.Path, strings.NewReader(body)) //nolint:noctx // it gets one
		r.Header.Set("Content-Type", "application/json")
		return info, r
	}
	c := newCrowd(size)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.send(ctx, rt, "mallory", 100, update)
	const share = size / 4 / (9 * megabyte) // each is in memory three times
	eventually(t, func() bool { return len(arrived) >= share && c.budget.Usage().Waiting >= 100-share })
	if used := c.budget.Usage(); len(arrived) != share || used.Held > size/4 || used.Waiting != 100-share {
		t.Fatalf("%d requests have arrived, %d wait and %d MiB are held; want %d, %d and at most %d", len(arrived), used.Waiting, used.Held/megabyte, share, 100-share, size/4/megabyte)
	}
	c.send(ctx, rt, "alice", 1, update)
	if !eventually(t, func() bool { return len(arrived) == share+1 }) {
		t.Error("another user waits, too")
	}
	cancel()
	close(c.released)
	c.ended.Wait()
	if used := c.budget.Usage(); used.Held != 0 || used.Waiting != 0 {
		t.Errorf("at the end: %+v", used)
	}
}
