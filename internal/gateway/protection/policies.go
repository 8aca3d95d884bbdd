package protection

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// Policies watches the ProtectionPolicies of the hub, and the labels of its namespaces.
type Policies struct {
	informer   cache.SharedIndexInformer
	namespaces corelisters.NamespaceLister
	// unsynced reports whether the namespaces of the hub are not loaded yet; nil means they are.
	unsynced func() bool
	file     string // empty to keep nothing

	mu      sync.Mutex
	current atomic.Pointer[[]policy]
}

// NewPolicies returns Policies that watch the hub. If dir is not empty, they are kept there for a start while the hub is down. client
// serves Cellplane's own kinds.
func NewPolicies(client rest.Interface, factory informers.SharedInformerFactory, dir string) (*Policies, error) {
	p := &Policies{
		informer:   cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, "protectionpolicies", "", fields.Everything()), &cellplanev1alpha1.ProtectionPolicy{}, 0, nil),
		namespaces: factory.Core().V1().Namespaces().Lister(),
	}
	synced := factory.Core().V1().Namespaces().Informer().HasSynced
	p.unsynced = func() bool { return !synced() }
	if dir != "" {
		p.file = filepath.Join(dir, "protection.json")
	}
	_, err := p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.recompile() },
		UpdateFunc: func(any, any) { p.recompile() },
		DeleteFunc: func(any) { p.recompile() },
	})
	return p, err
}

// Run watches the hub until the context ends.
func (p *Policies) Run(ctx context.Context) {
	p.loadKept(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced) {
			p.recompile() // without policies there was no event
		}
	}()
	p.informer.RunWithContext(ctx)
}

// Known reports whether the policies are loaded, from the hub or from disk.
func (p *Policies) Known() bool { return p.current.Load() != nil }

func (p *Policies) all() []policy {
	if current := p.current.Load(); current != nil {
		return *current
	}
	return nil
}

func (p *Policies) recompile() {
	if !p.informer.HasSynced() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sources := make([]*cellplanev1alpha1.ProtectionPolicy, 0)
	for _, object := range p.informer.GetStore().List() {
		if source, ok := object.(*cellplanev1alpha1.ProtectionPolicy); ok {
			sources = append(sources, source)
		}
	}
	p.publish(sources)
	if err := p.keep(sources); err != nil {
		klog.Background().Error(err, "keeping the protection policies failed, a restart will need the hub", "file", p.file)
	}
}

func (p *Policies) publish(sources []*cellplanev1alpha1.ProtectionPolicy) {
	compiled := make([]policy, 0, len(sources))
	for _, source := range sources {
		one, err := compile(source)
		if err != nil {
			klog.Background().Error(err, "ignoring an invalid protection policy")
			continue
		}
		compiled = append(compiled, one)
	}
	slices.SortFunc(compiled, func(a, b policy) int { return strings.Compare(a.name, b.name) })
	p.current.Store(&compiled)
}

func (p *Policies) keep(sources []*cellplanev1alpha1.ProtectionPolicy) error {
	if p.file == "" {
		return nil
	}
	data, err := json.Marshal(sources)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(p.file+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(p.file+".new", p.file)
}

func (p *Policies) loadKept(ctx context.Context) {
	if p.file == "" {
		return
	}
	data, err := os.ReadFile(p.file)
	var sources []*cellplanev1alpha1.ProtectionPolicy
	if err == nil {
		err = json.Unmarshal(data, &sources)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			klog.FromContext(ctx).Error(err, "reading the kept protection policies failed, waiting for the hub", "file", p.file)
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current.Load() == nil {
		p.publish(sources)
	}
}

// namespacesUnknown reports whether the labels of namespaces are not known, because the gateway has started while the hub is down. The
// namespace selectors of policies then match all namespaces.
func (p *Policies) namespacesUnknown() bool { return p.unsynced != nil && p.unsynced() }

// namespaceLabels returns the labels of a namespace, as far as they are known.
func (p *Policies) namespaceLabels(name string) labels.Set {
	if name == "" {
		return nil
	}
	namespace, err := p.namespaces.Get(name)
	if err != nil {
		return nil
	}
	return namespace.Labels
}

// namespacesWith returns the namespaces that a selector matches.
func (p *Policies) namespacesWith(selector labels.Selector) []string {
	found, _ := p.namespaces.List(selector) // a lister of a cache does not fail
	var matching []string
	for _, namespace := range found {
		matching = append(matching, namespace.Name)
	}
	return matching
}
