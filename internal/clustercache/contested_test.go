package clustercache_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
)

// TestContestedNames watches a share of the members. The watch also reports objects of other members with the same name.
func TestContestedNames(t *testing.T) {
	store := newStore(t, clustercache.Options{})
	ours, theirs := store.Feed("m1"), store.Feed("m2")
	created := func(second int64) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(time.Unix(second, 0)) }
	}
	of := func(uid types.UID) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.UID = uid } }
	share := clustercache.Filter{Labels: labels.SelectorFromSet(labels.Set{names.ClusterLabel: "m1"})}
	watcher := startWatch(t, store, clustercache.WatchOptions{Filter: share, From: store.Version(), Contested: true})
	elsewhere := startWatch(t, store, clustercache.WatchOptions{Filter: clustercache.Filter{Namespace: "elsewhere"}, From: store.Version(), Contested: true})
	plain := startWatch(t, store, clustercache.WatchOptions{Filter: share, From: store.Version()})

	apply(t, ours, simplePod("alone", 1))
	apply(t, theirs, simplePod("theirs", 1))
	apply(t, theirs, simplePod("web-0", 2, created(2), of("b")))
	apply(t, ours, simplePod("web-0", 3, created(1), of("a")))   // takes its place
	apply(t, ours, simplePod("web-0", 4, created(1), of("a")))   // stays there
	apply(t, theirs, simplePod("web-0", 5, created(2), of("b"))) // is not shown
	ours.DeleteObject("default", "web-0")                        // theirs is shown again

	type received struct {
		of        watch.EventType
		contested bool
		name, in  string
	}
	expect := func(watcher *clustercache.Watcher, want ...received) {
		t.Helper()
		for _, w := range want {
			event := nextEvent(t, watcher)
			if got := (received{event.Type, event.Contested, event.Object.Name, event.Object.Cluster}); got != w {
				t.Fatalf("got %v, want %v", got, w)
			}
		}
		if event, err := watcher.Pending(); event != nil || err != nil {
			t.Fatalf("got another event %v, %v", event, err)
		}
	}
	expect(watcher,
		received{watch.Added, false, "alone", "m1"},
		received{watch.Deleted, true, "web-0", "m2"}, received{watch.Deleted, true, "web-0", "m1"},
		received{watch.Modified, false, "web-0", "m1"},
		received{watch.Deleted, true, "web-0", "m1"}, received{watch.Deleted, true, "web-0", "m2"},
	)
	expect(elsewhere)
	expect(plain,
		received{watch.Added, false, "alone", "m1"}, received{watch.Added, false, "web-0", "m1"}, received{watch.Modified, false, "web-0", "m1"}, received{watch.Deleted, false, "web-0", "m1"})
}

// TestGetAmong gets the oldest object among some members, shown or not.
func TestGetAmong(t *testing.T) {
	store := newStore(t, clustercache.Options{})
	for i, member := range []string{"m1", "m2", "m3"} {
		apply(t, store.Feed(member), simplePod("web-0", 1, func(pod *corev1.Pod) {
			pod.UID, pod.CreationTimestamp = types.UID(member), metav1.NewTime(time.Unix(int64(10-i), 0))
		}))
	}
	store.Feed("m3").DeleteObject("default", "web-0")
	for _, test := range []struct {
		members []string
		want    string
	}{
		{[]string{"m1", "m2", "m3"}, "m2"}, {[]string{"m2"}, "m2"}, {[]string{"m1", "m3"}, "m1"}, {[]string{"m3"}, ""}, {nil, ""},
	} {
		object, err := store.GetAmong(func(cluster string) bool { return slices.Contains(test.members, cluster) }, "default", "web-0")
		if object.Cluster != test.want || apierrors.IsNotFound(err) != (test.want == "") {
			t.Errorf("among %v got the object of %q, want %q (%v)", test.members, object.Cluster, test.want, err)
		}
	}
	if _, err := store.GetAmong(func(string) bool { return true }, "default", "other"); !apierrors.IsNotFound(err) {
		t.Errorf("an unknown name: %v", err)
	}
}
