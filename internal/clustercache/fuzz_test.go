package clustercache_test

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/clustercache"
)

// FuzzToken continues a list with an arbitrary token. It is refused, or a page is returned.
func FuzzToken(f *testing.F) {
	store, err := clustercache.New(clustercache.Options{Kind: clustercache.Pods()})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(store.Close)
	feed := store.Feed("m1")
	for _, name := range []string{"a", "b", "c"} {
		if err := feed.ApplyObject(simplePod(name, 1)); err != nil {
			f.Fatal(err)
		}
	}
	first, err := store.List(clustercache.ListOptions{Limit: 1})
	if err != nil {
		f.Fatal(err)
	}
	token, _ := first.Continue()
	first.Close()
	f.Add(token, 1)
	f.Add(clustercache.ContinueAfter(0, "default", "a"), 2)
	f.Add(clustercache.ContinueAfter(store.Version()+1, "default", "a"), 0)
	f.Add("e30", 1)
	f.Fuzz(func(t *testing.T, token string, limit int) {
		list, err := store.List(clustercache.ListOptions{Limit: limit, Continue: token})
		if err != nil {
			if !apierrors.IsBadRequest(err) && !apierrors.IsResourceExpired(err) {
				t.Fatalf("got %v, want 400 or 410", err)
			}
			return
		}
		defer list.Close()
		if list.Len() > 3 || limit > 0 && list.Len() > limit {
			t.Fatalf("%d objects on a page of %d", list.Len(), limit)
		}
		for object, err := range list.Objects() {
			if err != nil || object.Namespace != "default" {
				t.Fatalf("got %v, %v", object, err)
			}
		}
		next, remaining := list.Continue()
		if remaining != nil && *remaining < 1 || (next == token && next != "") {
			t.Fatalf("after %q comes %q, and %v remain", token, next, remaining)
		}
	})
}

// FuzzVersion watches from, lists at and looks up arbitrary versions: those that the store issued are known, all others foreign.
func FuzzVersion(f *testing.F) {
	start := time.Unix(1_700_000_000, 0)
	store, err := clustercache.New(clustercache.Options{Kind: clustercache.Pods(), Incarnation: clustercache.NewIncarnation(start, "a"), History: 4})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(store.Close)
	given := map[uint64]bool{store.Version(): true}
	feed := store.Feed("m1")
	for i := range 20 {
		if err := feed.ApplyObject(simplePod("a", 1+i)); err != nil {
			f.Fatal(err)
		}
		given[store.Version()] = true
	}
	for version := range given {
		f.Add(version)
		f.Add(version + 1)
	}
	f.Add(uint64(0))
	f.Add(^uint64(0))
	f.Fuzz(func(t *testing.T, version uint64) {
		if err := store.Foreign(version); (err == nil) != given[version] || err != nil && !apierrors.IsResourceExpired(err) {
			t.Fatalf("%d: got %v, issued: %t", version, err, given[version])
		}
		expired := store.Expired(version)
		if expired == nil && !given[version] {
			t.Fatalf("%d was never issued and is not expired", version)
		}
		if version == 0 {
			return // 0 means the current version
		}
		watcher, err := store.Watch(clustercache.WatchOptions{From: version})
		if err == nil {
			watcher.Close()
		}
		if (err == nil) != (expired == nil) {
			t.Fatalf("watching from %d: %v", version, err)
		}
		list, err := store.List(clustercache.ListOptions{Version: version})
		if err == nil {
			list.Close()
		}
		if (err == nil) != (expired == nil) {
			t.Fatalf("listing at %d: %v", version, err)
		}
		if _, _, ok := store.MemberVersion("default", "a", version); ok && !given[version] {
			t.Fatalf("%d was never issued and has a member version", version)
		}
	})
}
