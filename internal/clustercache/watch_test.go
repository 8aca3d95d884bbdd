package clustercache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cellplane/cellplane/internal/clustercache"
)

func newStore(t *testing.T, options clustercache.Options) *clustercache.Store {
	t.Helper()
	if options.Kind.Resource == "" {
		options.Kind = clustercache.Pods()
	}
	store, err := clustercache.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func simplePod(name string, version int, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: fmt.Sprint(version)}}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func apply(t *testing.T, feed *clustercache.Feed, pod *corev1.Pod) {
	t.Helper()
	if err := feed.ApplyObject(pod); err != nil {
		t.Fatal(err)
	}
}

func startWatch(t *testing.T, store *clustercache.Store, options clustercache.WatchOptions) *clustercache.Watcher {
	t.Helper()
	watcher, err := store.Watch(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Close)
	return watcher
}

func nextEvent(t *testing.T, watcher *clustercache.Watcher) *clustercache.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	event, err := watcher.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return event
}

func TestAWatcherWaits(t *testing.T) {
	store := newStore(t, clustercache.Options{})
	feed := store.Feed("m1")
	watcher := startWatch(t, store, clustercache.WatchOptions{})
	if event := nextEvent(t, watcher); !event.InitialEventsEnd {
		t.Fatalf("got %v", event)
	}
	go func() { _ = feed.ApplyObject(simplePod("p", 1)) }()
	if event := nextEvent(t, watcher); event.Type != watch.Added || event.Object.Name != "p" || event.Version != store.Version() {
		t.Fatalf("got %v", event)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := watcher.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// A canceled call does not end the watch.
	apply(t, feed, simplePod("p", 2))
	if event := nextEvent(t, watcher); event.Type != watch.Modified {
		t.Fatalf("got %v", event)
	}
}

func TestBookmarksOfAQuietWatch(t *testing.T) {
	store := newStore(t, clustercache.Options{})
	feed := store.Feed("m1")
	selector := labels.SelectorFromSet(labels.Set{"app": "other"})
	watcher := startWatch(t, store, clustercache.WatchOptions{Filter: clustercache.Filter{Labels: selector}, From: store.Version(), Bookmarks: time.Millisecond})
	apply(t, feed, simplePod("p", 1))
	want := store.Version()
	for {
		event := nextEvent(t, watcher)
		if event.Type != watch.Bookmark || event.InitialEventsEnd {
			t.Fatalf("got %v", event)
		}
		// Objects that are not selected advance bookmarks too.
		if event.Version == want {
			break
		}
	}
}

func TestASlowWatcherIsCut(t *testing.T) {
	store := newStore(t, clustercache.Options{History: 8})
	feed := store.Feed("m1")
	apply(t, feed, simplePod("p", 1))
	slow := startWatch(t, store, clustercache.WatchOptions{From: store.Version()})
	for i := range 20 {
		apply(t, feed, simplePod("p", 2+i))
	}
	for range 2 {
		if _, err := slow.Next(t.Context()); !apierrors.IsResourceExpired(err) {
			t.Fatalf("got %v, want the watch cut", err)
		}
	}
	if stats := store.Stats(); stats.CutWatchers != 1 || stats.Watchers != 1 || stats.History != 8 {
		t.Errorf("got %+v", stats)
	}
}

// TestRecentChangesAreBounded changes large objects. The changes that are kept for all watchers do not exceed their bound, and watchers get all
// of them, also one that starts late.
func TestRecentChangesAreBounded(t *testing.T) {
	store := newStore(t, clustercache.Options{History: 1 << 10})
	feed := store.Feed("m1")
	apply(t, feed, simplePod("first", 1))
	from := store.Version()
	const changes = 100
	follow := func(from uint64) {
		t.Helper()
		watcher, err := store.Watch(clustercache.WatchOptions{From: from})
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Close()
		for i := range changes {
			event, err := watcher.Pending()
			if err != nil || event == nil || event.Object.Name != fmt.Sprint("p", i%10) {
				t.Fatalf("event %d: %+v, %v", i, event, err)
			}
		}
		if bytes, bound := store.RecentBytes(); bytes > bound || bytes == 0 {
			t.Fatalf("%d bytes are kept, want at most %d", bytes, bound)
		}
	}
	for i := range changes {
		pod := simplePod(fmt.Sprint("p", i%10), i+2)
		pod.Annotations = map[string]string{"large": strings.Repeat(fmt.Sprintf("%08d", i), 300<<10/8)}
		apply(t, feed, pod)
	}
	follow(from)
	follow(from)
}

func TestAPinnedHistoryIsBounded(t *testing.T) {
	store := newStore(t, clustercache.Options{History: 4, PinnedHistory: 16})
	feed := store.Feed("m1")
	for i := range 3 {
		apply(t, feed, simplePod(fmt.Sprint("p", i), 1))
	}
	list, err := store.List(clustercache.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	update := func(times int) {
		for i := range times {
			apply(t, feed, simplePod("p0", 2+i+int(store.Version()%1e9)))
		}
	}
	update(10)
	if got := store.Stats().History; got != 10 {
		t.Errorf("the history has %d events while a list is read, want 10", got)
	}
	for object, err := range list.Objects() {
		if err != nil {
			t.Fatal(err)
		}
		if object.MemberVersion != "1" {
			t.Errorf("%s is of version %s", object.Name, object.MemberVersion)
		}
	}
	update(20)
	if got := store.Stats().History; got > 16 {
		t.Errorf("the history has %d events, more than may be pinned", got)
	}
	for _, err := range list.Objects() {
		if !apierrors.IsResourceExpired(err) {
			t.Fatalf("got %v, want the list cut", err)
		}
	}
	if err := list.WriteProtobuf(io.Discard); !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v, want the list cut", err)
	}
	list.Close()
	update(10)
	if got := store.Stats().History; got != 4 {
		t.Errorf("the history has %d events after the list, want 4", got)
	}
}

func TestAnEventIsEncodedOnce(t *testing.T) {
	store := newStore(t, clustercache.Options{})
	feed := store.Feed("m1")
	from := store.Version()
	apply(t, feed, simplePod("p", 1))
	var encoded atomic.Int64
	var group sync.WaitGroup
	for range 20 {
		watcher := startWatch(t, store, clustercache.WatchOptions{From: from})
		group.Go(func() {
			event, err := watcher.Next(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			for _, format := range []string{"json", "protobuf"} {
				got, err := event.Encoded(format, func(w io.Writer) error {
					encoded.Add(1)
					_, err := io.WriteString(w, format)
					return err
				})
				if err != nil || string(got) != format {
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
	group.Wait()
	if encoded.Load() != 2 {
		t.Errorf("encoded %d times for two formats", encoded.Load())
	}
}

func TestForeignVersions(t *testing.T) {
	start := time.Now()
	one := newStore(t, clustercache.Options{Incarnation: clustercache.NewIncarnation(start, "a")})
	other := newStore(t, clustercache.Options{Incarnation: clustercache.NewIncarnation(start, "b")})
	later := newStore(t, clustercache.Options{Incarnation: clustercache.NewIncarnation(start.Add(time.Minute), "a")})
	for i := range 50 {
		for _, store := range []*clustercache.Store{one, other, later} {
			apply(t, store.Feed("m1"), simplePod("p", 1+i))
		}
	}
	if later.Version() <= one.Version() {
		t.Error("versions do not increase over a restart")
	}
	for name, version := range map[string]uint64{"another replica's": one.Version(), "one before the start": one.Version() - 10_000*1_000_000, "of the future": other.Version() + 10_000, "made up": 17} {
		if err := other.Expired(version); !apierrors.IsResourceExpired(err) {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := other.Watch(clustercache.WatchOptions{From: version}); !apierrors.IsResourceExpired(err) {
			t.Errorf("watching from %s: got %v", name, err)
		}
		if _, err := other.List(clustercache.ListOptions{Version: version}); !apierrors.IsResourceExpired(err) {
			t.Errorf("listing at %s: got %v", name, err)
		}
	}
	for name, err := range map[string]error{"the last": other.Expired(other.Version()), "not foreign": other.Foreign(other.Version()), "of the first event": other.Foreign(other.Version() - 49*10_000)} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := other.Foreign(one.Version()); !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v", err)
	}
	if got := len(fmt.Sprint(one.Version())); got != 19 {
		t.Errorf("a version has %d digits", got)
	}
}

func TestAsInOneCluster(t *testing.T) {
	// Two clusters have a pod of the same name. One is shown; once it is deleted, the other is shown as a new object.
	store := newStore(t, clustercache.Options{})
	created := func(at int64) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.CreationTimestamp = metav1.Unix(at, 0)
			pod.UID = types.UID(fmt.Sprint("created-", at))
		}
	}
	young, old := store.Feed("a"), store.Feed("b")
	watcher := startWatch(t, store, clustercache.WatchOptions{From: store.Version()})
	expect := func(of watch.EventType, cluster string) {
		t.Helper()
		event := nextEvent(t, watcher)
		if event.Type != of || event.Object.Cluster != cluster {
			t.Fatalf("got %s of %s, want %s of %s", event.Type, event.Object.Cluster, of, cluster)
		}
	}
	apply(t, young, simplePod("web-0", 1, created(200)))
	expect(watch.Added, "a")
	apply(t, old, simplePod("web-0", 1, created(100)))
	expect(watch.Deleted, "a")
	expect(watch.Added, "b")
	apply(t, young, simplePod("web-0", 2, created(200))) // not shown
	apply(t, old, simplePod("web-0", 2, created(100)))
	expect(watch.Modified, "b")
	shadowed, err := store.Get("a", "default", "web-0")
	if err != nil || shadowed.MemberVersion != "2" {
		t.Errorf("got %v, %v", shadowed, err)
	}
	if stats := store.Stats(); stats.Shadowed != 1 {
		t.Errorf("%d are shadowed", stats.Shadowed)
	}
	// The shown object is recreated, which makes it the younger one.
	apply(t, old, simplePod("web-0", 3, created(300)))
	expect(watch.Deleted, "b")
	expect(watch.Added, "a")
	young.Drop()
	expect(watch.Deleted, "a")
	expect(watch.Added, "b")
}
