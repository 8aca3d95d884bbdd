package main

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cellplane/cellplane/internal/clustercache"
)

// fanOut measures how many events reach watchers while updates are stored at full speed.
func (c *cache) fanOut(ctx context.Context) error {
	updates, err := c.revisions(c.updates + 1)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	var delivered, slow atomic.Int64
	last := make(chan struct{}, c.watchers)
	from := c.store.Version()
	// A second update to the same state is no event, so that the last version is known only at the end.
	var end atomic.Uint64
	for range c.watchers {
		watcher, err := c.store.Watch(clustercache.WatchOptions{From: from})
		if err != nil {
			return err
		}
		group.Go(func() error {
			defer watcher.Close()
			for {
				event, err := watcher.Next(watching)
				if watching.Err() != nil {
					return nil
				}
				if err != nil {
					slow.Add(1)
					last <- struct{}{}
					return nil
				}
				if _, err := event.Encoded("protobuf", func(w io.Writer) error {
					_, err := w.Write(event.Object.Raw)
					return err
				}); err != nil {
					return err
				}
				delivered.Add(1)
				if event.Version == end.Load() {
					last <- struct{}{}
				}
			}
		})
	}
	start := time.Now()
	group.Go(func() error {
		defer cancel()
		for _, u := range updates[:len(updates)-1] {
			if err := c.feedOf(u.pod).Apply(u.raw); err != nil {
				return err
			}
		}
		// One tick is ten thousand versions.
		end.Store(c.store.Version() + 10_000)
		u := updates[len(updates)-1]
		if err := c.feedOf(u.pod).Apply(u.raw); err != nil {
			return err
		}
		for range c.watchers {
			select {
			case <-last:
			case <-time.After(time.Minute):
				return errors.New("events did not reach all watchers within a minute")
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	took := time.Since(start)
	report("events fanned out to watchers", "%.0f/s to %d watchers at %.0f updates/s (%d cut)", float64(delivered.Load())/took.Seconds(), c.watchers,
		float64(len(updates))/took.Seconds(), slow.Load())
	return nil
}
