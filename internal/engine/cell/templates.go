package cell

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/fleet"
)

// rediscovery is how often kinds are discovered, in addition to changes of CustomResourceDefinitions.
const rediscovery = 30 * time.Second

// Templates caches all objects that may be templates, of every kind the cell serves. Kinds are added and removed.
type Templates struct {
	cell        *Cell
	options     Options
	subscribers []func(key TemplateKey, old, now *Template)

	mu    sync.RWMutex
	kinds map[schema.GroupVersionKind]*watchedKind

	changed chan struct{} // with a buffer of one: kinds may have changed
}

type watchedKind struct {
	kind   *Kind
	store  *Store[Template]
	cancel context.CancelFunc
	// refused is closed when the cell has refused to list the kind several times.
	refused <-chan struct{}
}

// mostRefusals is how often the cell may refuse to list a kind before Start continues without it.
const mostRefusals = 3

func newTemplates(c *Cell, options Options) *Templates {
	return &Templates{cell: c, options: options, kinds: map[schema.GroupVersionKind]*watchedKind{}, changed: make(chan struct{}, 1)}
}

// Subscribe registers a function that is called after every change of a template. It must be quick. Subscribe before
// the cell is started.
func (t *Templates) Subscribe(f func(key TemplateKey, old, now *Template)) {
	t.subscribers = append(t.subscribers, f)
}

// Get returns a template, nil if there is none.
func (t *Templates) Get(key TemplateKey) *Template {
	if store := t.store(key.GroupVersionKind); store != nil {
		return store.Get(key.Key)
	}
	return nil
}

// TemplateOf returns the template of a binding, nil if there is none or another template has its name.
func (c *Cell) TemplateOf(binding *workv1alpha2.ResourceBinding) *Template {
	ref := &binding.Spec.Resource
	if ref.Namespace != binding.Namespace {
		return nil // who writes bindings in a namespace has no say about other templates
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil
	}
	template := c.Templates.Get(TemplateKey{GroupVersionKind: gv.WithKind(ref.Kind), Key: Key{Namespace: ref.Namespace, Name: ref.Name}})
	if template == nil || (ref.UID != "" && ref.UID != template.UID) {
		return nil
	}
	return template
}

// TemplateExists asks the API server whether a template exists. Call it before deleting something because its template
// is not cached.
func (c *Cell) TemplateExists(ctx context.Context, key TemplateKey) (bool, error) {
	_, err := c.ReadTemplate(ctx, key)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// ReadTemplate reads a template from the API server.
func (c *Cell) ReadTemplate(ctx context.Context, key TemplateKey) (*unstructured.Unstructured, error) {
	kind := c.Templates.Kind(key.GroupVersionKind)
	if kind == nil {
		return nil, fmt.Errorf("reading %s: its kind is not served", key)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	template, err := c.template(&Template{Kind: kind, Namespace: key.Namespace}).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	return template, nil
}

// Kind returns how the cell serves a kind of templates, nil if it does not.
func (t *Templates) Kind(gvk schema.GroupVersionKind) *Kind {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if f := t.kinds[gvk]; f != nil {
		return f.kind
	}
	return nil
}

// Served returns how the cell serves a kind of templates, in whatever version, nil if it does not.
func (t *Templates) Served(gk schema.GroupKind) *Kind {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for gvk, f := range t.kinds {
		if gvk.GroupKind() == gk {
			return f.kind
		}
	}
	return nil
}

// Known reports whether all templates of a kind are cached: it is served and has been listed.
func (t *Templates) Known(gvk schema.GroupVersionKind) bool {
	store := t.store(gvk)
	if store == nil {
		return false
	}
	select {
	case <-store.Synced():
		return true
	default:
		return false
	}
}

// OfKind returns the templates of a kind, in no order; with a namespace, only those in it.
func (t *Templates) OfKind(gvk schema.GroupVersionKind, namespace string) []*Template {
	store := t.store(gvk)
	if store == nil {
		return nil
	}
	if namespace == "" {
		return store.All()
	}
	var inside []*Template
	for _, key := range store.indexed(templatesByNamespace, namespace) {
		if template := store.Get(key); template != nil {
			inside = append(inside, template)
		}
	}
	return inside
}

// OfKinds returns the templates of the kinds that a function selects, in no order.
func (t *Templates) OfKinds(picked func(schema.GroupVersionKind) bool) []*Template {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var found []*Template
	for gvk, f := range t.kinds {
		if picked(gvk) {
			found = append(found, f.store.All()...)
		}
	}
	return found
}

// ClaimedBy returns the templates that a policy of either kind claims, by its permanent ID.
func (t *Templates) ClaimedBy(id string) []*Template {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var claimed []*Template
	for _, f := range t.kinds {
		for _, key := range f.store.indexed(templatesByClaim, id) {
			if template := f.store.Get(key); template != nil {
				claimed = append(claimed, template)
			}
		}
	}
	return claimed
}

// Len returns the number of templates.
func (t *Templates) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	n := 0
	for _, f := range t.kinds {
		n += f.store.Len()
	}
	return n
}

// Indexes of templates.
const (
	templatesByClaim = iota
	templatesByNamespace
)

func (t *Templates) store(gvk schema.GroupVersionKind) *Store[Template] {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if f := t.kinds[gvk]; f != nil {
		return f.store
	}
	return nil
}

// start discovers kinds and watches them. It returns when all current kinds have been listed, except those that the
// cell cannot list: a kind whose definition is deleted again, or whose conversion fails, delays no other.
func (t *Templates) start(ctx context.Context) error {
	var err error
	for ctx.Err() == nil {
		if err = t.discover(ctx); err == nil {
			break
		}
		klog.FromContext(ctx).Info("cannot discover the kinds of the cell, retrying", "err", err)
		pause(ctx, time.Second)
	}
	t.mu.RLock()
	stores := maps.Clone(t.kinds)
	t.mu.RUnlock()
	for _, f := range stores {
		select {
		case <-f.store.Synced():
		case <-f.refused:
			klog.FromContext(ctx).Info("starting without a kind that cannot be listed, retrying it", "kind", f.kind.GroupVersionKind)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	go t.rediscover(ctx)
	return ctx.Err()
}

// Rediscover discovers kinds soon.
func (t *Templates) Rediscover() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

func (t *Templates) rediscover(ctx context.Context) {
	ticker := time.NewTicker(rediscovery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-t.changed:
			pause(ctx, 200*time.Millisecond) // CRDs come in groups, and are served a little after they are stored
		}
		if err := t.discover(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("cannot discover the kinds of the cell", "err", err)
		}
	}
}

// discover watches new kinds and stops watching removed ones.
func (t *Templates) discover(ctx context.Context) error {
	lists, err := t.cell.discovery.ServerPreferredResources()
	partial := discovery.IsGroupDiscoveryFailedError(err)
	if err != nil && !partial {
		return fmt.Errorf("discovering kinds: %w", err)
	}
	served := map[schema.GroupVersionKind]*Kind{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for i := range list.APIResources {
			if kind := t.templateKind(gv, &list.APIResources[i]); kind != nil {
				served[kind.GroupVersionKind] = kind
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for gvk, kind := range served {
		if known := t.kinds[gvk]; known == nil || *known.kind != *kind {
			if known != nil {
				known.cancel()
			}
			t.kinds[gvk] = t.watch(ctx, kind)
		}
	}
	for gvk, f := range t.kinds {
		// A group that did not answer is not removed.
		if served[gvk] == nil && !partial {
			f.cancel()
			delete(t.kinds, gvk)
		}
	}
	return nil
}

// templateKind returns the kind if its objects may be templates.
func (t *Templates) templateKind(gv schema.GroupVersion, resource *metav1.APIResource) *Kind {
	kind := &Kind{GroupVersionKind: gv.WithKind(resource.Kind), Resource: resource.Name, Namespaced: resource.Namespaced}
	switch {
	case strings.Contains(resource.Name, "/"):
	case !kind.Namespaced && !t.options.ClusterScoped:
	case !allVerbs(resource.Verbs, "list", "watch", "delete"):
	case neverTemplates(kind.GroupVersionKind):
	case t.options.Skip != nil && t.options.Skip(kind.GroupVersionKind):
	default:
		return kind
	}
	return nil
}

func allVerbs(verbs metav1.Verbs, wanted ...string) bool {
	have := map[string]bool{}
	for _, verb := range verbs {
		have[verb] = true
	}
	for _, verb := range wanted {
		if !have[verb] {
			return false
		}
	}
	return true
}

// neverTemplates reports kinds of the control plane, and kinds that each cluster manages by itself.
func neverTemplates(gvk schema.GroupVersionKind) bool {
	switch gvk.Group {
	case "cluster.karmada.io", "policy.karmada.io", "work.karmada.io", "config.karmada.io", "apps.karmada.io",
		"autoscaling.karmada.io", "remedy.karmada.io", "search.karmada.io", "operator.karmada.io", "cellplane.io",
		"apiregistration.k8s.io", "coordination.k8s.io", "events.k8s.io", "certificates.k8s.io", "flowcontrol.apiserver.k8s.io",
		"internal.apiserver.k8s.io", "storagemigration.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "discovery.k8s.io":
		return true
	case "":
		switch gvk.Kind {
		case "Event", "Node", "Namespace", "Endpoints", "ComponentStatus", "Binding":
			return true
		}
	}
	return strings.HasSuffix(gvk.Group, ".cellplane.io")
}

// watch watches the objects of a kind. It is called with the lock held.
func (t *Templates) watch(ctx context.Context, kind *Kind) *watchedKind {
	ctx, cancel := context.WithCancel(ctx)
	store := newTemplateStore(kind)
	store.Subscribe(func(key Key, old, now *Template) {
		for _, subscriber := range t.subscribers {
			subscriber(TemplateKey{GroupVersionKind: kind.GroupVersionKind, Key: key}, old, now)
		}
	})
	logger := klog.FromContext(ctx)
	into := sink(reserved{store})
	if stored := t.cell.Revisions.stores[kind.GroupVersionKind]; stored != nil {
		into = &divided{templates: into, revisions: stored, kind: kind}
	}
	source := fleet.ResourceSource(t.cell.discovery.RESTClient(), kind.GVR(), fleet.DecodeUnstructured, into.knows)
	refused, refusals := make(chan struct{}), 0
	go fleet.Watch(ctx, source, into, func(err error) {
		logger.V(2).Info("cannot watch templates, retrying", "kind", kind.Kind, "err", err)
		if fleet.Unreachable(err) {
			return
		}
		if refusals++; refusals == mostRefusals {
			close(refused)
		}
	})
	return &watchedKind{kind: kind, store: store, cancel: cancel, refused: refused}
}

// newTemplateStore returns an empty store of templates of a kind.
func newTemplateStore(kind *Kind) *Store[Template] {
	return newStore(condenseTemplate(kind), func(template *Template) []string {
		var ids []string
		for _, id := range []string{template.Claim.PolicyID, template.Claim.ClusterPolicyID} {
			if id != "" {
				ids = append(ids, id)
			}
		}
		return ids
	}, func(template *Template) []string { return []string{template.Namespace} })
}

// reserved keeps objects of the control plane, and objects that every cluster creates by itself, out of a store.
type reserved struct{ *Store[Template] }

// Set ignores objects in reserved namespaces and objects that every cluster creates.
func (r reserved) Set(obj runtime.Object) {
	m, ok := obj.(metav1.Object)
	if !ok || names.IsReservedNamespace(m.GetNamespace()) || strings.HasPrefix(m.GetNamespace(), "kube-") {
		return
	}
	if m.GetName() == RootCAConfigMap && obj.GetObjectKind().GroupVersionKind().Kind == "ConfigMap" {
		return
	}
	r.Store.Set(obj)
}

// RootCAConfigMap is in every namespace of every cluster, with the cluster's own CA.
const RootCAConfigMap = "kube-root-ca.crt"

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
