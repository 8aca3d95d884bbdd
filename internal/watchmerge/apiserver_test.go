package watchmerge_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/splice"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/watchmerge"
)

// gateway merges the watches of two namespaces of a real API server, which stand for two cells.
type gateway struct {
	t     *testing.T
	url   string
	http  *http.Client
	cells []string

	lock     sync.Mutex
	begun    int // watches with initial events
	resumed  int
	upstream map[int]context.CancelFunc
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	options := watchmerge.Options{Epoch: 3, Cells: len(g.cells), InitialEventsEnd: query.Get("sendInitialEvents") == "true", Bookmarks: true}
	contentType := "application/json"
	if strings.HasPrefix(r.Header.Get("Accept"), splice.ProtobufContentType) {
		options.Encoding, contentType = splice.Protobuf, splice.ProtobufContentType
	}
	kind, err := position.Classify(query.Get("resourceVersion"))
	if err != nil || query.Get("watch") == "" {
		http.Error(w, "only watches are served", http.StatusBadRequest)
		return
	}
	g.lock.Lock()
	if kind == position.Merged {
		p, _ := position.Parse(query.Get("resourceVersion"))
		options.Start = p.Versions
		g.resumed++
	} else {
		g.begun++
	}
	g.lock.Unlock()
	merger, err := watchmerge.New(options, time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	flush := http.NewResponseController(w).Flush
	var buf []byte
	driver := watchmerge.Driver{
		Merger: merger,
		Open: func(ctx context.Context, cell int, version uint64, initial bool) (watchmerge.Stream, error) {
			return g.open(ctx, cell, version, initial, options.Encoding, contentType)
		},
		Begin: func() {
			w.Header().Set("Content-Type", contentType+map[splice.Encoding]string{splice.Protobuf: ";stream=watch"}[options.Encoding])
			w.WriteHeader(http.StatusOK)
			_ = flush()
		},
		Send: func(outputs []watchmerge.Output) error {
			buf = buf[:0]
			for _, output := range outputs {
				buf = output.Append(buf)
			}
			if _, err := w.Write(buf); err != nil {
				return err
			}
			return flush()
		},
	}
	if err := driver.Run(r.Context()); err != nil && r.Context().Err() == nil {
		g.t.Errorf("a watch failed: %v", err)
	}
}

func (g *gateway) counts() (begun, resumed int) {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.begun, g.resumed
}

func (g *gateway) open(ctx context.Context, cell int, version uint64, initial bool, encoding splice.Encoding, accept string) (watchmerge.Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	g.lock.Lock()
	g.upstream[cell] = cancel
	g.lock.Unlock()
	start := fmt.Sprintf("resourceVersion=%d", version)
	if initial {
		start = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+"/api/v1/namespaces/"+g.cells[cell]+"/configmaps?watch=1&allowWatchBookmarks=true&labelSelector=test=merge&"+start, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	response, err := g.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", watchmerge.ErrUnavailable, err)
	}
	context.AfterFunc(ctx, func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the cell answers %s", response.Status)
	}
	return splice.NewEventReader(response.Body, encoding, 0), nil
}

// TestInformerOverMergedWatch checks that an unmodified informer sees one cluster, even if connections break.
func TestInformerOverMergedWatch(t *testing.T) {
	plane := testenv.SharedAPIServer(t)
	for _, contentType := range []string{"application/json", splice.ProtobufContentType} {
		t.Run(contentType, func(t *testing.T) {
			config := plane.RESTConfig()
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			g := &gateway{t: t, url: config.Host, http: client, cells: []string{plane.Namespace(t), plane.Namespace(t)}, upstream: map[int]context.CancelFunc{}}
			server := httptest.NewServer(g)
			t.Cleanup(server.Close)

			f := &federation{t: t, g: g, client: plane.Client(t)}
			f.create(0, "a")
			f.create(1, "b")
			f.watch(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: contentType}})
			f.expect("0/a", "1/b")

			f.create(0, "c")
			f.delete(0, "a")
			f.create(1, "d")
			f.expect("0/c", "1/b", "1/d")

			g.lock.Lock()
			g.upstream[1]() // a cell's stream breaks
			g.lock.Unlock()
			f.create(1, "e")
			f.expect("0/c", "1/b", "1/d", "1/e")
			if _, resumed := g.counts(); resumed != 0 {
				t.Error("the client saw that a cell's stream broke")
			}

			server.CloseClientConnections() // the client's connection breaks
			f.delete(1, "b")
			f.create(0, "f")
			f.expect("0/c", "0/f", "1/d", "1/e")

			testenv.Eventually(t, "the informer reports two deletions", func(context.Context) (bool, error) {
				f.lock.Lock()
				defer f.lock.Unlock()
				return slices.Equal(f.deleted, []string{"0/a", "1/b"}), fmt.Errorf("the informer reported the deletion of %v", f.deleted)
			})
			if begun, resumed := g.counts(); begun != 1 || resumed == 0 {
				t.Errorf("the informer listed %d times and resumed %d times", begun, resumed)
			}
		})
	}
}

// federation writes to the cells and watches through the gateway.
type federation struct {
	t      *testing.T
	g      *gateway
	client kubernetes.Interface
	store  cache.Store

	lock    sync.Mutex
	deleted []string
}

func (f *federation) create(cell int, name string) {
	f.t.Helper()
	_, err := f.client.CoreV1().ConfigMaps(f.g.cells[cell]).Create(f.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": "merge"}}}, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *federation) delete(cell int, name string) {
	f.t.Helper()
	if err := f.client.CoreV1().ConfigMaps(f.g.cells[cell]).Delete(f.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// name returns an object as `cell/name`.
func (f *federation) name(object any) string {
	configMap := object.(*corev1.ConfigMap)
	return fmt.Sprintf("%d/%s", slices.Index(f.g.cells, configMap.Namespace), configMap.Name)
}

func (f *federation) watch(config *rest.Config) {
	f.t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		f.t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().ConfigMaps().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		f.lock.Lock()
		defer f.lock.Unlock()
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		f.deleted = append(f.deleted, f.name(object))
	}}); err != nil {
		f.t.Fatal(err)
	}
	f.store = informer.GetStore()
	factory.StartWithContext(f.t.Context())
	f.t.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(f.t.Context().Done(), informer.HasSynced) {
		f.t.Fatal("the informer did not sync")
	}
}

func (f *federation) expect(names ...string) {
	f.t.Helper()
	testenv.Eventually(f.t, fmt.Sprintf("the informer has %v", names), func(context.Context) (bool, error) {
		var got []string
		for _, object := range f.store.List() {
			got = append(got, f.name(object))
		}
		slices.Sort(got)
		return slices.Equal(got, names), fmt.Errorf("the informer has %v", got)
	})
}
