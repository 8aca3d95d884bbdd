package ingest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/testenv"
)

// forgetful makes the next resumed watch expire if forgets is set.
type forgetful struct {
	http.RoundTripper
	mu      sync.Mutex
	forgets bool
	asked   int
}

// RoundTrip implements http.RoundTripper. It replaces the version of a resumed watch by one that is compacted.
func (f *forgetful) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if query := r.URL.Query(); f.forgets && query.Get("resourceVersion") != "" {
		f.forgets = false
		f.asked++
		query.Set("resourceVersion", "1")
		r = r.Clone(r.Context())
		r.URL.RawQuery = query.Encode()
	}
	return f.RoundTripper.RoundTrip(r)
}

// TestAMemberThatHasLostItsHistory has a real API server answer 410. Watchers see only what has changed since.
func TestAMemberThatHasLostItsHistory(t *testing.T) {
	server := testenv.SharedAPIServer(t)
	namespace := server.Namespace(t)
	events := server.Client(t).CoreV1().Events(namespace)
	create := func(name string) {
		if _, err := events.Create(t.Context(), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		create(fmt.Sprintf("event-%d", i))
	}
	store, err := clustercache.New(clustercache.Options{Kind: clustercache.Events()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client, err := rest.HTTPClientFor(server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	transport := &forgetful{RoundTripper: client.Transport}
	base, err := url.Parse(server.RESTConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	// The stream does not retry while the member is unhealthy.
	alive := newHealth()
	s := &stream{
		client: &http.Client{Transport: transport}, base: base, path: "/api/v1/namespaces/" + namespace + "/events", feed: &feed{to: store.Feed("member")},
		failed: func(error) {}, await: alive.await,
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	defer running.Wait()
	defer cancel()
	testenv.Eventually(t, "all events are cached", func(context.Context) (bool, error) {
		members := store.Clusters()
		return len(members) == 1 && members[0].Synced && members[0].Objects == 3, nil
	})
	watcher, err := store.Watch(clustercache.WatchOptions{From: store.Version()})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()

	alive.set(true)
	transport.mu.Lock()
	transport.forgets = true
	transport.mu.Unlock()
	s.interrupt()
	create("event-3")
	if err := events.Delete(t.Context(), "event-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	alive.set(false)
	got := map[string]watch.EventType{}
	for got["event-3"] == "" || got["event-1"] == "" {
		event, err := next(t, watcher)
		if err != nil {
			t.Fatal(err)
		}
		got[event.Object.Name] = event.Type
	}
	if len(got) != 2 || got["event-3"] != watch.Added || got["event-1"] != watch.Deleted {
		t.Errorf("watchers see %v", got)
	}
	create("event-4")
	if event, err := next(t, watcher); err != nil || event.Object.Name != "event-4" {
		t.Errorf("then watchers see %v, %v", event, err)
	}
	transport.mu.Lock()
	defer transport.mu.Unlock()
	if transport.asked != 1 {
		t.Errorf("%d watches were resumed from a lost version, want 1", transport.asked)
	}
}

func next(t *testing.T, watcher *clustercache.Watcher) (*clustercache.Event, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return watcher.Next(ctx)
}
