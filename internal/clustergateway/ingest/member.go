package ingest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fleet"
)

// source is a member, or the federation's own templates.
type source struct {
	name  string
	times Times
	feeds []*feed
	paths []string // of each feed

	// current is nil while the source is not watched.
	current *run
	uid     types.UID
	// connection is nil for the templates.
	connection *fleet.MemberConnection
	// foreign is set for a member that another share of the cluster-gateways shows. Only the metadata of its objects is needed: where an
	// object of ours has the same name, all shares must agree on which one is shown.
	foreign bool
	// left is when its Cluster was deleted, or zero.
	left time.Time
}

// run is one period of watching a source, with one connection.
type run struct {
	client *http.Client
	base   *url.URL
	cancel context.CancelFunc
	done   chan struct{}
}

// start watches the source. It replaces the current run.
func (s *source) start(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("connecting to cluster %s: %w", s.name, err)
	}
	base, err := url.Parse(config.Host)
	if err != nil {
		return fmt.Errorf("connecting to cluster %s: %w", s.name, err)
	}
	before := s.current
	if before != nil {
		before.cancel()
	}
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, klog.FromContext(ctx).WithValues("cluster", s.name)))
	next := &run{client: client, base: base, cancel: cancel, done: make(chan struct{})}
	s.current = next
	go func() {
		defer close(next.done)
		if before != nil {
			<-before.done
		}
		s.follow(ctx, next)
	}()
	return nil
}

// stop ends the current run; the objects stay.
func (s *source) stop() {
	if s.current == nil {
		return
	}
	s.current.cancel()
	<-s.current.done
	s.current = nil
}

// follow runs the streams and the health probes until the context ends.
func (s *source) follow(ctx context.Context, r *run) {
	h := newHealth()
	var all sync.WaitGroup
	streams := make([]*stream, len(s.feeds))
	for i, f := range s.feeds {
		streams[i] = &stream{client: r.client, base: r.base, path: s.paths[i], feed: f, failed: explain(ctx, s.paths[i]), await: h.await, metadataOnly: s.foreign}
		all.Go(func() { streams[i].run(ctx) })
	}
	all.Go(func() { s.probe(ctx, r, h, streams) })
	all.Wait()
	utilnet.CloseIdleConnectionsFor(r.client.Transport)
}

// probe probes the source, and removes objects that have been stale for too long.
func (s *source) probe(ctx context.Context, r *run, h *health, streams []*stream) {
	ticker := time.NewTicker(s.times.Probe)
	defer ticker.Stop()
	missed := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := probe(ctx, r.client, r.base, s.times.ProbeTimeout)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			missed = 0
			if h.set(false) {
				klog.FromContext(ctx).Info("the member answers again")
			}
		} else if missed++; missed >= maxMissed {
			if h.set(true) {
				klog.FromContext(ctx).Info("the member does not answer; its objects are shown as stale", "err", err)
				for _, stream := range streams {
					stream.feed.lost(time.Now())
					stream.interrupt() // it may hang
				}
			}
			// The next probe gets a new connection.
			utilnet.CloseIdleConnectionsFor(r.client.Transport)
		}
		s.expire(ctx)
	}
}

func (s *source) expire(ctx context.Context) {
	for i, f := range s.feeds {
		if f.expire(time.Now().Add(-s.times.StaleAfter)) {
			klog.FromContext(ctx).Info("removed the objects of a member that cannot be watched", "path", s.paths[i], "after", s.times.StaleAfter)
		}
	}
}

func (s *source) listed() bool {
	for _, f := range s.feeds {
		if !f.isListed() {
			return false
		}
	}
	return true
}
