package replicate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// Options configure a Replicator.
type Options struct {
	// Rules are what is copied; nil means Rules().
	Rules []*Rule
	// Workers is how many objects are written to one cell concurrently; 0 means 16.
	Workers int
	// Prepare is called whenever a cell becomes reachable, before anything is copied. It may be nil.
	Prepare func(ctx context.Context, cell string, config *rest.Config) error
	// Report is called once for each object in a cell that is not a copy. It may be nil.
	Report func(cell string, found Obstacle)
}

// Replicator copies the hub's global objects into cells. Create one with New, and Start it.
type Replicator struct {
	options Options
	hub     *hub

	mu      sync.Mutex
	ctx     context.Context // of Start; nil before
	cells   map[string]*cell
	running sync.WaitGroup
}

// New returns a Replicator for a hub.
func New(config *rest.Config, options Options) (*Replicator, error) {
	if options.Rules == nil {
		options.Rules = Rules()
	}
	if options.Workers <= 0 {
		options.Workers = 16
	}
	client, err := dynamic.NewForConfig(unlimited(config))
	if err != nil {
		return nil, fmt.Errorf("preparing to read the hub: %w", err)
	}
	hub, err := newHub(client, options.Rules)
	if err != nil {
		return nil, err
	}
	return &Replicator{options: options, hub: hub, cells: map[string]*cell{}}, nil
}

// Start copies until ctx ends, and returns when everything has stopped.
func (r *Replicator) Start(ctx context.Context) error {
	r.mu.Lock()
	r.ctx = ctx
	for _, cell := range r.cells {
		r.launch(cell)
	}
	r.mu.Unlock()
	r.hub.run(ctx)
	r.running.Wait()
	return nil
}

// SetCell starts copying to a cell. Called again, for example with new credentials, it reconnects.
func (r *Replicator) SetCell(name string, config *rest.Config) error {
	cell, err := newCell(name, config, r.hub, r.options)
	if err != nil {
		return fmt.Errorf("preparing to copy to cell %s: %w", name, err)
	}
	former := r.exchange(name, cell)
	former.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx != nil && r.ctx.Err() == nil && r.cells[name] == cell {
		r.launch(cell)
	}
	return nil
}

// RemoveCell stops copying to a cell. Its objects stay.
func (r *Replicator) RemoveCell(name string) { r.exchange(name, nil).stop() }

// exchange replaces a cell and returns its predecessor.
func (r *Replicator) exchange(name string, successor *cell) *cell {
	r.mu.Lock()
	defer r.mu.Unlock()
	former := r.cells[name]
	if successor == nil {
		delete(r.cells, name)
	} else {
		r.cells[name] = successor
	}
	return former
}

// launch starts a cell unless it runs already. The caller holds the lock.
func (r *Replicator) launch(c *cell) {
	if c.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(klog.NewContext(r.ctx, klog.FromContext(r.ctx).WithValues("cell", c.name)))
	c.cancel, c.stopped = cancel, make(chan struct{})
	r.running.Go(func() {
		defer close(c.stopped)
		c.run(ctx)
	})
}

// Status returns the state of replication by cell.
func (r *Replicator) Status() map[string]Status {
	now := time.Now()
	all := map[string]Status{}
	for _, cell := range r.snapshot() {
		all[cell.name] = cell.status(now)
	}
	return all
}

// Released reports whether no reachable cell has a copy of an object. Unreachable cells lose theirs when they are back.
func (r *Replicator) Released(resource schema.GroupVersionResource, namespace, name string, uid types.UID) bool {
	for _, cell := range r.snapshot() {
		if !cell.released(resource, namespace, name, uid) {
			return false
		}
	}
	return true
}

func (r *Replicator) snapshot() []*cell {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.cells))
}

// unlimited removes the rate limit: the number of workers bounds requests.
func unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{} // deprecated kinds are the user's choice
	return config
}
