package clustercache_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustercache/synthetic"
)

// TestEverythingAtOnce feeds, lists and watches members concurrently, with realistic pods and a short history. In the end informers
// hold what a list returns.
func TestEverythingAtOnce(t *testing.T) {
	const members, pods, rounds = 3, 120, 6
	store := newStore(t, clustercache.Options{History: 64, PinnedHistory: 256, TrainingSamples: 32})
	var writers, readers sync.WaitGroup
	done, cancel := context.WithCancel(t.Context())
	defer cancel()

	for m := range members {
		writers.Go(func() {
			feed := store.Feed(fmt.Sprint("m", m))
			for round := range rounds {
				feed.Begin()
				for i := range pods {
					if (i+round)%7 == 0 {
						continue // removed in this round
					}
					// Members share the pods of every third workload.
					if err := feed.ApplyObject(synthetic.Pod(i/5*5*members+i/15%2*m*5+i%5, round)); err != nil {
						t.Error(err)
					}
				}
				feed.End()
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for done.Err() == nil {
				list, err := store.List(clustercache.ListOptions{Filter: clustercache.Filter{Labels: labels.SelectorFromSet(labels.Set{"app.kubernetes.io/managed-by": "Helm"})}})
				if err != nil {
					if !apierrors.IsResourceExpired(err) {
						t.Error(err)
					}
					continue
				}
				if err := list.WriteProtobuf(io.Discard); err != nil && !apierrors.IsResourceExpired(err) {
					t.Error(err)
				}
				list.Close()
			}
		})
	}
	informers := make([]map[string]uint64, 3)
	finished := make(chan struct{})
	for i := range informers {
		readers.Go(func() { informers[i] = inform(t, store, finished) })
	}
	writers.Wait()
	cancel()
	close(finished)
	readers.Wait()

	want := listed(t, store)
	for i, got := range informers {
		if len(got) != len(want) {
			t.Errorf("informer %d has %d pods, want %d", i, len(got), len(want))
		}
		for key, version := range want {
			if got[key] != version {
				t.Errorf("informer %d has %s at %d, want %d", i, key, got[key], version)
			}
		}
	}
}

func listed(t *testing.T, store *clustercache.Store) map[string]uint64 {
	t.Helper()
	list, err := store.List(clustercache.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	all := map[string]uint64{}
	for object, err := range list.Objects() {
		if err != nil {
			t.Fatal(err)
		}
		all[object.Namespace+"/"+object.Name] = object.Version
	}
	return all
}

// inform watches a store as a reflector does, until it has caught up after finished is closed.
func inform(t *testing.T, store *clustercache.Store, finished <-chan struct{}) map[string]uint64 {
	for {
		if state, ok := follow(t, store, finished); ok {
			return state
		}
	}
}

// follow returns false when the watch was cut and a relist is needed.
func follow(t *testing.T, store *clustercache.Store, finished <-chan struct{}) (map[string]uint64, bool) {
	watcher, err := store.Watch(clustercache.WatchOptions{Bookmarks: 1})
	if err != nil {
		if !apierrors.IsResourceExpired(err) {
			t.Error(err)
			return nil, true
		}
		return nil, false
	}
	defer watcher.Close()
	state := map[string]uint64{}
	synced := false
	for {
		event, err := watcher.Next(t.Context())
		if err != nil {
			if !apierrors.IsResourceExpired(err) {
				t.Error(err)
				return nil, true
			}
			return nil, false
		}
		key := event.Object.Namespace + "/" + event.Object.Name
		_, known := state[key]
		switch event.Type {
		case watch.Added:
			if known {
				t.Errorf("%s is added twice", key)
			}
			state[key] = event.Version
		case watch.Modified:
			if !known {
				t.Errorf("%s is modified before it is added", key)
			}
			state[key] = event.Version
		case watch.Deleted:
			if !known {
				t.Errorf("%s is deleted before it is added", key)
			}
			delete(state, key)
		case watch.Bookmark:
			if event.InitialEventsEnd {
				synced = true
			}
			select {
			case <-finished:
				if synced && event.Version == store.Version() {
					return state, true
				}
			default:
			}
		}
	}
}
