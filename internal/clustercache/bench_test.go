package clustercache_test

import (
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

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

// BenchmarkApply applies new pods and updates of them: each pass over the pods is another revision.
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

// BenchmarkUpdate applies updates of random pods, whose templates are not cached, while as many events leave the history.
// It measures CPU time, as the machine may be busy.
func BenchmarkUpdate(b *testing.B) {
	store, err := clustercache.New(clustercache.Options{Kind: clustercache.Pods(), History: 1024})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(store.Close)
	feed := store.Feed("member")
	fill(b, feed, 2*benchPods)
	// Each pass over the updates brings the pods to another revision.
	var updates [][]byte
	for revision := range 2 {
		r := rand.New(rand.NewPCG(1, 2))
		for range 8192 {
			raw, err := synthetic.Pod(r.IntN(2*benchPods), 1+revision).Marshal()
			if err != nil {
				b.Fatal(err)
			}
			updates = append(updates, raw)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.ReportAllocs()
	i := 0
	start := threadTime(b)
	for b.Loop() {
		if err := feed.Apply(updates[i%len(updates)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
	b.ReportMetric(float64(threadTime(b)-start)/float64(i), "cpu-ns/op")
}

func fill(b *testing.B, feed *clustercache.Feed, pods int) {
	b.Helper()
	var encoder synthetic.Encoder
	for i := range pods {
		raw, err := encoder.Encode(i, 0)
		if err != nil {
			b.Fatal(err)
		}
		if err := feed.Apply(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func threadTime(b *testing.B) int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		b.Fatal(err)
	}
	return now.Nano()
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
