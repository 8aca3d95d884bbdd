package ingest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/fleet"
)

// source is a member, or the federation's own templates.
type source struct {
	name  string
	times Times
	feeds []*feed
	paths []string // of each feed
	// chosen are the kinds that are watched in this member besides, by kind.
	chosen map[schema.GroupVersionKind]*chosen

	// current is nil while the source is not watched.
	current *run
	uid     types.UID
	// connection is nil for the templates.
	connection *fleet.MemberConnection
	// foreign is set for a member that another share of the cluster-gateways shows. Only the metadata of its objects is needed: where an
	// object of ours has the same name, all shares must agree on which one is shown.
	foreign bool
	// cluster is its last known Cluster; nil for the templates.
	cluster *clusterv1alpha1.Cluster
	// left is when its Cluster was deleted, or zero.
	left time.Time
}

// run is one period of watching a source, with one connection.
type run struct {
	client *http.Client
	base   *url.URL
	health *health
	ctx    context.Context
	cancel context.CancelFunc
	// began is closed when the run before has ended, and done when this one has.
	began, done chan struct{}

	mu      sync.Mutex
	streams []*stream
	ended   bool
	all     sync.WaitGroup
}

// do runs a function as a part of the run, unless that has ended.
func (r *run) do(part func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	r.all.Go(part)
	return true
}

// follow runs a stream until the context ends.
func (r *run) follow(ctx context.Context, s *stream) {
	r.mu.Lock()
	r.streams = append(r.streams, s)
	r.mu.Unlock()
	s.run(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams = slices.DeleteFunc(r.streams, func(other *stream) bool { return other == s })
}

// running returns the streams.
func (r *run) running() []*stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.streams)
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
	next := &run{client: client, base: base, health: newHealth(), ctx: ctx, cancel: cancel, began: make(chan struct{}), done: make(chan struct{})}
	s.current = next
	go func() {
		defer close(next.done)
		if before != nil {
			<-before.done
		}
		close(next.began)
		s.follow(next)
	}()
	for _, c := range s.chosen {
		c.start(s)
	}
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
func (s *source) follow(r *run) {
	for i, f := range s.feeds {
		r.do(func() {
			r.follow(r.ctx, &stream{client: r.client, base: r.base, path: s.paths[i], feed: f, failed: explain(r.ctx, s.paths[i]), await: r.health.await, metadataOnly: s.foreign})
		})
	}
	s.probe(r)
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.all.Wait()
	utilnet.CloseIdleConnectionsFor(r.client.Transport)
}

// probe probes the source, and removes objects that have been stale for too long.
func (s *source) probe(r *run) {
	ctx, h := r.ctx, r.health
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
				for _, stream := range r.running() {
					stream.feed.lost(time.Now())
					stream.interrupt() // it may hang
				}
			}
			// The next probe gets a new connection.
			utilnet.CloseIdleConnectionsFor(r.client.Transport)
		}
		for _, stream := range r.running() {
			s.expire(ctx, stream.feed, stream.path)
		}
	}
}

// expire removes objects that have been stale for too long.
func (s *source) expire(ctx context.Context, f *feed, path string) {
	if f.expire(time.Now().Add(-s.times.StaleAfter)) {
		klog.FromContext(ctx).Info("removed the objects of a member that cannot be watched", "path", path, "after", s.times.StaleAfter)
	}
}

// all returns all feeds. The caller holds the lock of the Members.
func (s *source) all() []*feed {
	all := slices.Clone(s.feeds)
	for _, c := range s.chosen {
		if f := c.opened.Load(); f != nil {
			all = append(all, f)
		}
	}
	return all
}

// followed reports whether all objects are known, and none are stale.
func (s *source) followed() bool {
	return !slices.ContainsFunc(s.feeds, func(f *feed) bool { return !f.isFollowed() })
}

func (s *source) listed() bool {
	for _, f := range s.feeds {
		if !f.isListed() {
			return false
		}
	}
	return true
}
