package topology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/position"
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
	once    sync.Once

	mu      sync.Mutex
	history []*View // oldest first, the current one last
}

// NewTracker returns a Tracker that keeps the topology in a directory; an empty one means nowhere.
func NewTracker(source Source, connections *fleet.Cells, dir string) *Tracker {
	t := &Tracker{source: source, connections: connections, known: make(chan struct{})}
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
		t.take(ctx, kept)
	case !errors.Is(err, fs.ErrNotExist):
		logger.Error(err, "The kept topology cannot be read; waiting for the hub", "file", t.file)
	}
	return t.source.Run(ctx, func(topology Topology) {
		if !t.take(ctx, topology) {
			return
		}
		if err := t.save(topology); err != nil {
			logger.Error(err, "The topology cannot be kept; a restart will need the hub", "file", t.file)
		}
	})
}

// take makes a topology the current one, unless it makes no sense or is older than what is known.
func (t *Tracker) take(ctx context.Context, topology Topology) bool {
	logger := klog.FromContext(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if last := t.current.Load(); last != nil && topology.Epoch < last.Epoch() {
		return false
	}
	view, invalid, unconnected := compile(topology, t.connections)
	if invalid != nil {
		logger.Error(invalid, "The topology is not valid; serving with the last one", "epoch", topology.Epoch)
		return false
	}
	if unconnected != nil {
		logger.Error(unconnected, "Some cells cannot be connected to", "epoch", topology.Epoch)
	}
	if n := len(t.history); n > 0 && t.history[n-1].Epoch() == view.Epoch() {
		t.history = t.history[:n-1]
	}
	t.history = append(t.history, view)
	if len(t.history) > keptEpochs {
		t.history = t.history[1:]
	}
	t.current.Store(view)
	topologyEpoch.Set(float64(topology.Epoch))
	t.once.Do(func() { close(t.known) })
	return true
}

// View returns the current View, nil before the first.
func (t *Tracker) View() *View { return t.current.Load() }

// Known is closed when there is a View.
func (t *Tracker) Known() <-chan struct{} { return t.known }

// Carry brings a position of an earlier epoch to that of view. It is ErrForeign if the epoch is not remembered or objects have changed
// their cells since: what a client saw before would then no longer follow from the position.
func (t *Tracker) Carry(p position.Position, view *View) (position.Position, error) {
	if p.Epoch == view.Epoch() && len(p.Versions) == view.Map.Cells() {
		return p, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, old := range t.history {
		if old.Epoch() != p.Epoch {
			continue
		}
		if !sameOwners(old, view) {
			break
		}
		return p.Carry(view.Epoch(), old.Names(), view.Names())
	}
	return position.Position{}, fmt.Errorf("a position of epoch %d: %w", p.Epoch, position.ErrForeign)
}

func (t *Tracker) load() (Topology, error) {
	var topology Topology
	if t.file == "" {
		return topology, fs.ErrNotExist
	}
	data, err := os.ReadFile(t.file)
	if err != nil {
		return topology, err
	}
	return topology, json.Unmarshal(data, &topology)
}

// save keeps a topology. The file holds credentials, so that only its owner may read it.
func (t *Tracker) save(topology Topology) error {
	if t.file == "" {
		return nil
	}
	data, err := json.Marshal(topology)
	if err != nil {
		return err
	}
	return replaceFile(t.file, data)
}

func replaceFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	scratch := path + ".new"
	if err := os.WriteFile(scratch, data, 0o600); err != nil {
		return err
	}
	return os.Rename(scratch, path)
}
