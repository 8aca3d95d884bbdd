package topology

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/short"
)

// keptEpochs is how many earlier topologies a Tracker remembers, for clients that resume from positions of then.
const keptEpochs = 16

// Tracker holds the current View.
type Tracker struct {
	source      Source
	connections *fleet.Cells
	file        string // "" keeps nothing

	current atomic.Pointer[View]
	known   chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed and replaced whenever there is another View
	history []*View       // oldest first, the current one last
	kept    []Topology    // what history was made of
	// latest is the highest epoch that has been delivered, ready or not.
	latest int64
	short  short.Cells
}

// NewTracker returns a Tracker that keeps the topology in a directory; an empty one means nowhere.
func NewTracker(source Source, connections *fleet.Cells, dir string) *Tracker {
	t := &Tracker{source: source, connections: connections, known: make(chan struct{}), changed: make(chan struct{})}
	if dir != "" {
		t.file = filepath.Join(dir, "topology.json")
	}
	return t
}

// Run takes the topology from disk and then follows the source until the context ends.
func (t *Tracker) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	kept, err := t.load()
	switch {
	case err == nil:
		t.restore(ctx, kept)
	case !errors.Is(err, fs.ErrNotExist):
		logger.Error(err, "The kept topology cannot be read; waiting for the hub", "file", t.file)
	}
	return t.source.Run(ctx, func(topology Topology) {
		if !t.take(ctx, topology) {
			return
		}
		if err := t.save(); err != nil {
			logger.Error(err, "The topology cannot be kept; a restart will need the hub", "file", t.file)
		}
	})
}

// take makes a topology the current one, unless it makes no sense or is older than what is known. One that is not ready only announces
// itself, unless there is nothing better.
func (t *Tracker) take(ctx context.Context, topology Topology) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.current.Load()
	if last != nil && topology.Epoch < t.latest {
		return false
	}
	if last != nil && topology.Epoch == last.Epoch() {
		topology.Ready = topology.Ready || last.ready // an epoch in force stays so
		topology.MovedSlots = union(topology.MovedSlots, last.moved)
	}
	if last != nil && !topology.Ready && last.ready {
		return t.announce(ctx, last, topology)
	}
	view, invalid, unconnected := compile(topology, t.connections)
	if invalid != nil {
		klog.FromContext(ctx).Error(invalid, "The topology is not valid; serving with the last one", "epoch", topology.Epoch)
		return false
	}
	if unconnected != nil {
		klog.FromContext(ctx).V(2).Info("Some cells cannot be connected to", "epoch", topology.Epoch, "err", unconnected)
	}
	view.Short = t.short.Connect(view.Names(), topology.endpoints())
	t.adopt(view, topology)
	return true
}

// announce notes that a later epoch is coming.
func (t *Tracker) announce(ctx context.Context, last *View, topology Topology) bool {
	ahead, err := topology.compile()
	if err != nil {
		klog.FromContext(ctx).Error(err, "The topology is not valid; serving with the last one", "epoch", topology.Epoch)
		return false
	}
	t.latest = topology.Epoch
	view := *last
	view.ahead = ahead
	t.history[len(t.history)-1] = &view
	t.publish(&view)
	return false // what is kept on disk is what requests are routed by
}

// adopt routes requests by a view from now on.
func (t *Tracker) adopt(view *View, topology Topology) {
	last := t.current.Load()
	if n := len(t.history); n > 0 && t.history[n-1].Epoch() == view.Epoch() {
		view.superseded = t.history[n-1].superseded
		t.history, t.kept = t.history[:n-1], t.kept[:n-1]
	}
	t.history, t.kept = append(t.history, view), append(t.kept, topology)
	if len(t.history) > keptEpochs {
		t.history, t.kept = t.history[1:], t.kept[1:]
	}
	t.latest = max(t.latest, view.Epoch())
	t.publish(view)
	topologyEpoch.Set(float64(view.Epoch()))
	switch {
	case last == nil:
		close(t.known)
	case last.superseded != view.superseded:
		close(last.superseded)
	}
}

func (t *Tracker) publish(view *View) {
	t.current.Store(view)
	close(t.changed)
	t.changed = make(chan struct{})
}

// union joins two bitmaps.
func union(a, b []byte) []byte {
	if len(a) < len(b) {
		a, b = b, a
	}
	joined := append([]byte(nil), a...)
	for i, bits := range b {
		joined[i] |= bits
	}
	return joined
}

// View returns the current View, nil before the first.
func (t *Tracker) View() *View { return t.current.Load() }

// Known is closed when there is a View.
func (t *Tracker) Known() <-chan struct{} { return t.known }

// Await waits for a View that is good enough, and returns the current one when there is none before the context ends.
func (t *Tracker) Await(ctx context.Context, enough func(*View) bool) (*View, bool) {
	for {
		t.mu.Lock()
		view, changed := t.current.Load(), t.changed
		t.mu.Unlock()
		if view != nil && enough(view) {
			return view, true
		}
		select {
		case <-ctx.Done():
			return view, false
		case <-changed:
		}
	}
}
