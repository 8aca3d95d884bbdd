package kinds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fleet"
)

const (
	// refreshEvery is the interval of refreshes. Most responses are an empty 304.
	refreshEvery  = 3 * time.Second
	refreshWithin = 10 * time.Second
)

// Registry keeps the Catalog up to date.
type Registry struct {
	hub    *fleet.Upstream
	cells  func() []*fleet.Upstream
	expose func(schema.GroupResource) bool
	// definition returns a CustomResourceDefinition of the hub, nil if there is none.
	definition func(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error)
	metrics    func() bool
	pushed     bool
	file       string // "" stores nothing

	hashes storageHashes

	current atomic.Pointer[Catalog]
	known   chan struct{}

	mu      sync.Mutex
	sources map[*fleet.Upstream]*source
	hubDocs *documents
	// withMetrics is whether the catalog announces metrics.
	withMetrics bool
}

// Options configure a Registry.
type Options struct {
	// Hub is the connection to the hub.
	Hub *fleet.Upstream
	// Cells returns the connections to the current cells.
	Cells func() []*fleet.Upstream
	// Expose selects the resources to announce; nil selects all.
	Expose func(schema.GroupResource) bool
	// Definition returns a CustomResourceDefinition of the hub, nil if there is none.
	Definition func(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error)
	// Metrics reports whether to announce metrics of members; nil means never.
	Metrics func() bool
	// Pushed announces what agents push.
	Pushed bool
	// Dir is the directory in which the hub's documents are stored for a restart; empty means none.
	Dir string
}

// NewRegistry returns a Registry without a Catalog.
func NewRegistry(o Options) *Registry {
	if o.Expose == nil {
		o.Expose = func(schema.GroupResource) bool { return true }
	}
	r := &Registry{hub: o.Hub, cells: o.Cells, expose: o.Expose, definition: o.Definition, metrics: o.Metrics, pushed: o.Pushed, known: make(chan struct{}), sources: map[*fleet.Upstream]*source{}, hashes: storageHashes{hub: o.Hub}}
	if o.Dir != "" {
		r.file = filepath.Join(o.Dir, "discovery.json")
	}
	return r
}

// Run keeps the catalog up to date until the context ends.
func (r *Registry) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	r.loadKept(ctx)
	ticker := time.NewTicker(refreshEvery)
	defer ticker.Stop()
	failing := false
	for {
		err := r.refresh(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			logger.Error(err, "Cannot learn what the hub serves; going on with what is known")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Catalog returns the current catalog, nil before the first.
func (r *Registry) Catalog() *Catalog { return r.current.Load() }

// Known returns a channel that is closed when there is a Catalog.
func (r *Registry) Known() <-chan struct{} { return r.known }

// Lookup returns a resource. If it is unknown the hub's CustomResourceDefinitions are checked: a definition exists some time before
// discovery lists it, and its author expects to use it.
func (r *Registry) Lookup(ctx context.Context, gvr schema.GroupVersionResource) (Resource, bool) {
	if catalog := r.Catalog(); catalog != nil {
		if resource, found := catalog.Lookup(gvr); found {
			return resource, true
		}
	}
	definition, err := r.definition(ctx, gvr.Resource+"."+gvr.Group)
	if err != nil || definition == nil {
		return Resource{}, false // with the hub down, unknown resources do not exist
	}
	for _, version := range definition.Spec.Versions {
		if version.Name == gvr.Version && version.Served {
			return Resource{
				GroupVersionResource: gvr,
				Kind:                 definition.Spec.Names.Kind,
				Namespaced:           definition.Spec.Scope == apiextensionsv1.NamespaceScoped,
			}, true
		}
	}
	return Resource{}, false
}

// refresh reads the discovery documents of all control planes.
func (r *Registry) refresh(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, refreshWithin)
	defer cancel()
	return r.ask(ctx)
}

func (r *Registry) ask(ctx context.Context) error {
	upstreams := []*fleet.Upstream{r.hub}
	for _, cell := range r.cells() {
		if cell != nil {
			upstreams = append(upstreams, cell)
		}
	}
	sources := make(map[*fleet.Upstream]*source, len(upstreams))
	var group errgroup.Group
	for _, upstream := range upstreams {
		s := r.sources[upstream]
		if s == nil {
			s = &source{upstream: upstream}
		}
		sources[upstream] = s
		group.Go(func() error {
			s.refresh(ctx)
			return nil
		})
	}
	_ = group.Wait() // sources keep their errors
	r.sources = sources

	hub := sources[r.hub]
	changed := false
	for _, s := range sources {
		changed = s.changed || changed
	}
	if withMetrics := r.metrics != nil && r.metrics(); withMetrics != r.withMetrics {
		r.withMetrics, changed = withMetrics, true
	}
	if hub.docs != nil {
		if hub.changed || r.hubDocs == nil {
			r.hubDocs = hub.docs
			r.keep(ctx)
		}
	}
	if r.hubDocs == nil {
		return fmt.Errorf("reading discovery of the hub: %w", errors.Join(hub.err, errors.New("no resources are known yet")))
	}
	if changed || r.current.Load() == nil {
		r.publish(upstreams[1:])
	}
	return hub.err
}

// publish creates the catalog. Cells that have never answered are left out: they would hide everything.
func (r *Registry) publish(cells []*fleet.Upstream) {
	var served []documents
	for _, cell := range cells {
		if s := r.sources[cell]; s != nil && s.docs != nil {
			served = append(served, *s.docs)
		}
	}
	first := r.current.Load() == nil
	var others []apidiscoveryv2.APIGroupDiscovery
	if r.withMetrics {
		others = append(others, metricsGroup)
	}
	if r.pushed {
		others = append(others, workloadMetrics)
	}
	catalog := newCatalog(*r.hubDocs, served, r.expose, others...)
	catalog.all.hashes = &r.hashes
	r.current.Store(catalog)
	if first {
		close(r.known)
	}
}

// loadKept creates a first catalog from the documents stored before a restart.
func (r *Registry) loadKept(ctx context.Context) {
	if r.file == "" {
		return
	}
	data, err := os.ReadFile(r.file)
	if err != nil {
		return
	}
	var docs documents
	if err := json.Unmarshal(data, &docs); err != nil {
		klog.FromContext(ctx).Error(err, "The kept discovery cannot be read; waiting for the hub", "file", r.file)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hubDocs == nil {
		r.hubDocs = &docs
		r.publish(nil)
	}
}

func (r *Registry) keep(ctx context.Context) {
	if r.file == "" {
		return
	}
	data, err := json.Marshal(r.hubDocs)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(r.file), 0o700), os.WriteFile(r.file+".new", data, 0o600))
	}
	if err == nil {
		err = os.Rename(r.file+".new", r.file)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "The discovery cannot be kept; a restart will need the hub", "file", r.file)
	}
}
