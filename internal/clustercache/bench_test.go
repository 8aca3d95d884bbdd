package clustercache_test

import (
	"io"
	"testing"

	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustercache/synthetic"
)

const benchPods = 20_000

func encodedPods(b *testing.B, revision int) [][]byte {
	b.Helper()
	raws := make([][]byte, benchPods)
	for i := range raws {
		raw, err := synthetic.Pod(i, revision).Marshal()
		if err != nil {
			b.Fatal(err)
		}
		raws[i] = raw
	}
	return raws
}

func newPodStore(b *testing.B) *clustercache.Store {
	b.Helper()
	store, err := clustercache.New(clustercache.Options{Kind: clustercache.Pods()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(store.Close)
	return store
}

// BenchmarkApply takes in new pods, and updates of them: each run through the pods is another revision.
func BenchmarkApply(b *testing.B) {
	revisions := [][][]byte{encodedPods(b, 0), encodedPods(b, 1)}
	store := newPodStore(b)
	feed := store.Feed("member")
	i := 0
	for b.Loop() {
		if err := feed.Apply(revisions[i/benchPods%2][i%benchPods]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func BenchmarkListNamespace(b *testing.B) {
	store := newPodStore(b)
	feed := store.Feed("member")
	for _, raw := range encodedPods(b, 0) {
		if err := feed.Apply(raw); err != nil {
			b.Fatal(err)
		}
	}
	i := 0
	for b.Loop() {
		list, err := store.List(clustercache.ListOptions{Filter: clustercache.Filter{Namespace: synthetic.Namespace(i * 100 % benchPods)}})
		if err != nil {
			b.Fatal(err)
		}
		if err := list.WriteProtobuf(io.Discard); err != nil {
			b.Fatal(err)
		}
		list.Close()
		i++
	}
}
