package clustercache_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/position"
)

func revisionOf(cluster, name, version string) clustercache.Revision {
	return clustercache.Revision{Cluster: cluster, Namespace: "default", Name: name, Version: version}
}

// versionNow returns the version of a revision, without waiting.
func versionNow(t *testing.T, store *clustercache.Store, r clustercache.Revision) (uint64, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return store.VersionOf(ctx, r)
}

// TestVersionOfRevisions checks which version each revision of an object has, and what a client can do with it.
func TestVersionOfRevisions(t *testing.T) {
	store := newStore(t, clustercache.Options{})
	feed := store.Feed("m1")
	expect := func(what string, r clustercache.Revision, want uint64, wantErr error) {
		t.Helper()
		if got, err := versionNow(t, store, r); got != want || !errors.Is(err, wantErr) {
			t.Errorf("%s: got %d, %v, want %d, %v", what, got, err, want, wantErr)
		}
	}
	deleted := func(r clustercache.Revision) clustercache.Revision {
		r.Deleted = true
		return r
	}
	waits, nothing := context.Canceled, error(nil)

	expect("a member that is not known", revisionOf("m2", "p", "5"), 0, clustercache.ErrNotShown)
	expect("an object that is not there yet", revisionOf("m1", "p", "5"), 0, waits)
	apply(t, feed, simplePod("p", 5))
	fifth := store.Version()
	expect("the first revision", revisionOf("m1", "p", "5"), fifth, nothing)
	expect("one that is not there yet", revisionOf("m1", "p", "6"), 0, waits)
	expect("a deletion that is not there yet", deleted(revisionOf("m1", "p", "6")), 0, waits)
	expect("a version that is no number", revisionOf("m1", "p", "x6"), 0, waits)
	apply(t, feed, simplePod("p", 6))
	sixth := store.Version()
	apply(t, feed, simplePod("q", 7))
	before := store.Version()
	apply(t, feed, simplePod("p", 9))
	ninth := store.Version()
	expect("an earlier revision", revisionOf("m1", "p", "5"), fifth, nothing)
	expect("a later one", revisionOf("m1", "p", "6"), sixth, nothing)
	expect("the latest one", revisionOf("m1", "p", "9"), ninth, nothing)
	expect("one that was never shown", revisionOf("m1", "p", "8"), before, nothing)
	if _, _, ok := store.MemberVersion("default", "p", before); ok {
		t.Error("a change based on a revision that was never shown would be accepted")
	}
	watcher := startWatch(t, store, clustercache.WatchOptions{From: before})
	if event := nextEvent(t, watcher); event.Type != watch.Modified || event.Object.MemberVersion != "9" {
		t.Errorf("a watch from a revision that was never shown begins with %v", event)
	}

	apply(t, feed, simplePod("q", 10))
	before = store.Version()
	feed.DeleteObject("default", "p")
	gone := store.Version()
	expect("the latest revision of a deleted object", revisionOf("m1", "p", "9"), ninth, nothing)
	expect("a later one that was never shown", revisionOf("m1", "p", "11"), before, nothing)
	expect("the deletion", deleted(revisionOf("m1", "p", "11")), gone, nothing)
	apply(t, feed, simplePod("p", 12))
	expect("the deletion, after another object was created", deleted(revisionOf("m1", "p", "11")), gone, nothing)
	expect("the other object", revisionOf("m1", "p", "12"), store.Version(), nothing)

	feed.MarkStale(time.Now())
	expect("a member that cannot be watched", revisionOf("m1", "p", "13"), 0, clustercache.ErrNotShown)
	feed.Fresh()
	expect("a member that can be watched again", revisionOf("m1", "p", "13"), 0, waits)
	feed.Drop()
	expect("a member that is gone", revisionOf("m1", "p", "12"), 0, clustercache.ErrNotShown)
}

// TestVersionOfAnotherObject checks that an object whose name another one has in the view has no version there.
func TestVersionOfAnotherObject(t *testing.T) {
	store := newStore(t, clustercache.Options{})
	created := func(at int64) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.Unix(at, 0) }
	}
	apply(t, store.Feed("m1"), simplePod("p", 5, created(1)))
	shown := store.Version()
	apply(t, store.Feed("m2"), simplePod("p", 5, created(2)))
	for cluster, want := range map[string]uint64{"m1": shown, "m2": 0} {
		got, err := versionNow(t, store, revisionOf(cluster, "p", "5"))
		if got != want || (want == 0) != errors.Is(err, clustercache.ErrNotShown) {
			t.Errorf("the object of %s: got %d, %v, want %d", cluster, got, err, want)
		}
	}
	// A mark of staleness is a change of what is shown, and not of the object.
	feed := store.Feed("m1")
	feed.MarkStale(time.Now())
	feed.MarkObjects(10)
	feed.Fresh()
	if got, err := versionNow(t, store, revisionOf("m1", "p", "5")); err != nil || got != store.Version() {
		t.Errorf("after it was marked, the object has the version %d, %v, want %d", got, err, store.Version())
	}
}

// TestVersionOfATemplate checks that a template is found also if its cell got it by another change than when it was read.
func TestVersionOfATemplate(t *testing.T) {
	store := newStore(t, clustercache.Options{})
	at := func(change, cell uint16, revision uint64) string {
		return position.Version{Change: change, Cell: cell, Revision: revision}.String()
	}
	apply(t, store.Feed(""), simplePod("p", 0, func(pod *corev1.Pod) { pod.ResourceVersion = at(1, 2, 7) }))
	shown := store.Version()
	for _, same := range []string{at(1, 2, 7), at(4, 2, 7)} {
		if got, err := versionNow(t, store, revisionOf("", "p", same)); err != nil || got != shown {
			t.Errorf("%s: got %d, %v, want %d", same, got, err, shown)
		}
	}
	for _, later := range []string{at(1, 2, 8), at(4, 3, 7)} {
		if got, err := versionNow(t, store, revisionOf("", "p", later)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %d, %v, want none yet", later, got, err)
		}
	}
}

// TestVersionOfWaits checks that a revision is waited for.
func TestVersionOfWaits(t *testing.T) {
	store := newStore(t, clustercache.Options{})
	feed := store.Feed("m1")
	apply(t, feed, simplePod("p", 1))
	type answer struct {
		version uint64
		err     error
	}
	answers := make(chan answer, 2)
	for _, r := range []clustercache.Revision{revisionOf("m1", "p", "3"), {Cluster: "m1", Namespace: "default", Name: "p", Version: "4", Deleted: true}} {
		go func() {
			version, err := store.VersionOf(t.Context(), r)
			answers <- answer{version, err}
		}()
	}
	apply(t, feed, simplePod("p", 2))
	apply(t, feed, simplePod("p", 3))
	third := store.Version()
	if got := <-answers; got != (answer{third, nil}) {
		t.Errorf("got %v, want %d", got, third)
	}
	feed.DeleteObject("default", "p")
	if got := <-answers; got != (answer{store.Version(), nil}) {
		t.Errorf("got %v for the deletion, want %d", got, store.Version())
	}
}
