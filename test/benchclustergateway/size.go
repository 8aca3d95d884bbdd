package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustercache/synthetic"
)

// podsPerCluster spreads ten million pods over five hundred clusters.
const podsPerCluster = 20_000

// cache is a store with pods in it.
type cache struct {
	settings
	store *clustercache.Store
	feeds []*clustercache.Feed
	size  int
}

func measureSize(ctx context.Context, s settings) error {
	size, err := strconv.Atoi(s.pods)
	if err != nil {
		return err
	}
	fmt.Printf("%d pods\n", size)
	store, err := clustercache.New(clustercache.Options{Kind: clustercache.Pods()})
	if err != nil {
		return err
	}
	defer store.Close()
	c := &cache{settings: s, store: store, size: size}
	pauses := startPauses()
	if err := c.fill(ctx); err != nil {
		return err
	}
	if err := c.update(ctx); err != nil {
		return err
	}
	if err := c.reads(ctx); err != nil {
		return err
	}
	if err := c.fanOut(ctx); err != nil {
		return err
	}
	report("GC pause p99", "%v", pauses.p99())
	debug.FreeOSMemory()
	return c.reportMemory("bytes per pod at the end (RSS / pods)")
}

// batch has encoded pods to store.
type batch struct {
	first int
	raws  [][]byte
}

// batchSize bounds the memory of pods to store, which is measured as part of the cache.
const batchSize = 512

// fill stores all pods, as lists of the members would. The time to generate them is not counted.
func (c *cache) fill(ctx context.Context) error {
	for i := range (c.size + podsPerCluster - 1) / podsPerCluster {
		feed := c.store.Feed(fmt.Sprintf("member-%03d", i))
		feed.Begin()
		c.feeds = append(c.feeds, feed)
	}
	group, ctx := errgroup.WithContext(ctx)
	batches := make(chan batch, 1)
	group.Go(func() error {
		defer close(batches)
		var encoder synthetic.Encoder
		for first := 0; first < c.size; first += batchSize {
			b, err := encode(&encoder, first, min(batchSize, c.size-first))
			if err != nil {
				return err
			}
			select {
			case batches <- b:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	var busy time.Duration
	group.Go(func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for b := range batches {
			start := threadClock()
			for i, raw := range b.raws {
				if err := c.feedOf(b.first + i).Apply(raw); err != nil {
					return err
				}
			}
			busy += threadClock() - start
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	for _, feed := range c.feeds {
		feed.End()
	}
	stats := c.store.Stats()
	report("ingest of new pods, one core", "%.0f pods/s", float64(c.size)/busy.Seconds())
	report("bytes per pod in protobuf", "%d", stats.EncodedBytes/int64(stats.Objects))
	report("bytes per pod in the store", "%d of which names, indexed values and compressed pods %d", stats.ReservedBytes/int64(stats.Objects), stats.CompressedBytes/int64(stats.Objects))
	debug.FreeOSMemory()
	return c.reportMemory("bytes per pod all in (RSS / pods)")
}

func (c *cache) feedOf(i int) *clustercache.Feed { return c.feeds[i/podsPerCluster] }

func encode(encoder *synthetic.Encoder, first, count int) (batch, error) {
	b := batch{first: first}
	for i := first; i < first+count; i++ {
		raw, err := encoder.Encode(i, 0)
		if err != nil {
			return b, err
		}
		b.raws = append(b.raws, raw)
	}
	return b, nil
}

// updated has pods in another revision.
type updated struct {
	pod int
	raw []byte
}

func (c *cache) revisions(revision int) ([]updated, error) {
	r := rand.New(rand.NewPCG(1, uint64(revision)))
	all := make([]updated, c.updates)
	for i := range all {
		pod := r.IntN(c.size)
		raw, err := synthetic.Pod(pod, revision+i).Marshal()
		if err != nil {
			return nil, err
		}
		all[i] = updated{pod, raw}
	}
	return all, nil
}

// update stores updates of pods all over the cache.
func (c *cache) update(context.Context) error {
	updates, err := c.revisions(1)
	if err != nil {
		return err
	}
	runtime.GC()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := threadClock()
	for _, u := range updates {
		if err := c.feedOf(u.pod).Apply(u.raw); err != nil {
			return err
		}
	}
	report("ingest of updates, one core", "%.0f updates/s", float64(len(updates))/(threadClock()-start).Seconds())
	return nil
}

func (c *cache) reportMemory(name string) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	rss, peak := statusBytes(string(status), "VmRSS:"), statusBytes(string(status), "VmHWM:")
	report(name, "%d (RSS %.2f GiB, peak %.2f GiB)", rss/c.size, float64(rss)/(1<<30), float64(peak)/(1<<30))
	return nil
}

func statusBytes(status, name string) int {
	_, rest, _ := strings.Cut(status, name)
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kilobytes, err := strconv.Atoi(fields[0])
	if err != nil {
		return 0
	}
	return kilobytes << 10
}
