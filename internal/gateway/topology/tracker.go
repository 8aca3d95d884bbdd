package topology

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/expiry"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/short"
	"github.com/cellplane/cellplane/internal/slots"
)

// keptEpochs is how many topologies a Tracker remembers, so that clients can resume from positions of earlier epochs.
const keptEpochs = 16

// Tracker holds the current View.
type Tracker struct {
	// Hub says that the hub counts as one more cell of every View. It must not change once the Tracker runs.
	Hub bool

	source      Source
	connections *fleet.Cells
	file        string // "" saves nothing

	current atomic.Pointer[View]
	known   chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every new View
	history []*View       // oldest first, the current one last
	kept    []Topology    // the sources of history
	// latest is the highest epoch delivered, ready or not.
	latest int64
	short  short.Cells
}

// NewTracker returns a Tracker that saves the topology in a directory, or nowhere if dir is empty.
func NewTracker(source Source, connections *fleet.Cells, dir string) *Tracker {
	t := &Tracker{source: source, connections: connections, known: make(chan struct{}), changed: make(chan struct{})}
	if dir != "" {
		t.file = filepath.Join(dir, "topology.json")
	}
	return t
}

// Run loads the topology from disk and then takes those of the source until the context ends.
func (t *Tracker) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	kept, err := t.load()
	switch {
	case err == nil:
		t.restore(ctx, kept)
	case !errors.Is(err, fs.ErrNotExist):
		logger.Error(err, "cannot read the saved topology; waiting for the hub", "file", t.file)
	}
	return t.source.Run(ctx, func(topology Topology) {
		if !t.take(ctx, topology) {
			return
		}
		if err := t.save(); err != nil {
			logger.Error(err, "cannot save the topology; a restart will need the hub", "file", t.file)
		}
	})
}

// take makes a topology the current one, unless it is invalid or older than the latest. One that is not ready is only announced, if a
// ready one is in use.
func (t *Tracker) take(ctx context.Context, topology Topology) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.current.Load()
	if last != nil && topology.Epoch < t.latest {
		return false
	}
	if last != nil && topology.Epoch == last.Epoch() {
		topology.Ready = topology.Ready || last.Ready // an epoch in force stays in force
		topology.MovedSlots = union(topology.MovedSlots, last.MovedSlots)
		if len(topology.Owners) == 0 { // they may have been forgotten on the hub
			topology.Owners = t.kept[len(t.kept)-1].Owners
		}
	}
	if last != nil && !topology.Ready && last.Ready {
		return t.announce(ctx, last, topology)
	}
	if last != nil && last.Owners != nil && topology.Epoch > last.Epoch() && len(topology.Owners) == 0 {
		// Whatever happens, versions must not become lower.
		if followed, _, err := topology.WithOwners(last.Owners); err == nil {
			topology = followed
		}
	}
	view, invalid, unconnected := compile(topology, t.connections)
	if invalid != nil {
		klog.FromContext(ctx).Error(invalid, "invalid topology; keeping the last one", "epoch", topology.Epoch)
		return false
	}
	if unconnected != nil {
		klog.FromContext(ctx).V(2).Info("cannot connect to some cells", "epoch", topology.Epoch, "err", unconnected)
	}
	view.Hub = t.Hub
	view.Short = t.short.Connect(view.Names(), topology.endpoints())
	t.adopt(view, topology)
	return true
}

// announce notes that a later epoch is about to come into force.
func (t *Tracker) announce(ctx context.Context, last *View, topology Topology) bool {
	next, err := topology.compile()
	if err != nil {
		klog.FromContext(ctx).Error(err, "invalid topology; keeping the last one", "epoch", topology.Epoch)
		return false
	}
	t.latest = topology.Epoch
	view := *last
	view.Next = next
	t.history[len(t.history)-1] = &view
	t.publish(&view)
	return false // only topologies that requests are routed by are saved
}

// adopt routes requests by a view from now on.
func (t *Tracker) adopt(view *View, topology Topology) {
	last := t.current.Load()
	if n := len(t.history); n > 0 && t.history[n-1].Epoch() == view.Epoch() {
		view.superseded = t.history[n-1].superseded
		t.history, t.kept = t.history[:n-1], t.kept[:n-1]
	}
	view.number(t.history)
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

// Certificates returns those of the current View's connections to cells.
func (t *Tracker) Certificates() []expiry.Certificate {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.kept) == 0 {
		return nil
	}
	var all []expiry.Certificate
	for cell, endpoint := range t.kept[len(t.kept)-1].endpoints() {
		switch {
		case endpoint.CertFile != "":
			all = append(all, expiry.File("cell-client", endpoint.CertFile))
		case len(endpoint.Cert) > 0:
			all = append(all, expiry.Chain("cell-client", "Cell "+cell, endpoint.Cert))
		}
	}
	return all
}

// Since returns the topologies by which requests were routed, from an epoch to the current one, or the one that is about to come into
// force if its epoch is asked for. It returns nil if the topology of that epoch is not known.
func (t *Tracker) Since(epoch int64) []*slots.Map {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, view := range t.history {
		switch {
		case view.Next != nil && view.Next.Epoch() == epoch && i == len(t.history)-1:
			return []*slots.Map{view.Next}
		case view.Epoch() == epoch:
			maps := make([]*slots.Map, 0, len(t.history)-i)
			for _, later := range t.history[i:] {
				maps = append(maps, later.Map)
			}
			return maps
		}
	}
	return nil
}

// At returns the View of an epoch by which requests were routed, nil if it is not remembered.
func (t *Tracker) At(epoch int64) *View {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, view := range t.history {
		if view.Epoch() == epoch {
			return view
		}
	}
	return nil
}

// Known is closed when there is a View.
func (t *Tracker) Known() <-chan struct{} { return t.known }

// Await waits for a View that satisfies a condition. It returns the current one and false if the context ends before.
func (t *Tracker) Await(ctx context.Context, condition func(*View) bool) (*View, bool) {
	for {
		t.mu.Lock()
		view, changed := t.current.Load(), t.changed
		t.mu.Unlock()
		if view != nil && condition(view) {
			return view, true
		}
		select {
		case <-ctx.Done():
			return view, false
		case <-changed:
		}
	}
}
