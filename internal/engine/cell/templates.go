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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/fleet"
)

// rediscovery is how often the cell is asked for new kinds, besides whenever a CustomResourceDefinition changes.
const rediscovery = 30 * time.Second

// Templates is the picture of all objects that may be templates, of every kind the cell serves. Kinds come and go.
type Templates struct {
	cell        *Cell
	options     Options
	subscribers []func(key TemplateKey, old, now *Template)

	mu    sync.RWMutex
	kinds map[schema.GroupVersionKind]*followed

	changed chan struct{} // has room for one: kinds may have changed
}

type followed struct {
	kind   *Kind
	store  *Store[Template]
	cancel context.CancelFunc
	// refused is closed when the cell has refused several times to list the kind.
	refused <-chan struct{}
}

// mostRefusals is how often the cell may refuse to list a kind before a start does not wait for it any longer.
const mostRefusals = 3

func newTemplates(c *Cell, options Options) *Templates {
	return &Templates{cell: c, options: options, kinds: map[schema.GroupVersionKind]*followed{}, changed: make(chan struct{}, 1)}
}

// Subscribe has a function called after every change of a template. It must be quick. All subscriptions come before
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

// TemplateOf returns the template of a binding, nil if there is none or another one has taken its name.
func (c *Cell) TemplateOf(binding *workv1alpha2.ResourceBinding) *Template {
	ref := &binding.Spec.Resource
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

// TemplateExists asks the API server for a template, for those who are about to delete something because it is gone.
func (c *Cell) TemplateExists(ctx context.Context, key TemplateKey) (bool, error) {
	kind := c.Templates.Kind(key.GroupVersionKind)
	if kind == nil {
		return false, fmt.Errorf("looking for %s: its kind is not served", key)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := c.template(&Template{Kind: kind, Namespace: key.Namespace}).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for %s: %w", key, err)
	}
	return true, nil
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

// Known tells whether absence of a template of the kind means that there is none: its kind is served and listed.
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

// OfKind returns the templates of a kind, in no order; those of one namespace if one is given.
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

// OfKinds returns the templates of the kinds that a function picks, in no order.
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

// ClaimedBy returns the templates that carry the permanent ID of a policy of either kind.
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

// Len returns how many templates there are.
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

// start discovers kinds, follows them, and returns when all kinds of this moment have been listed, but those that the cell
// cannot list: one whose definition is gone again, or whose versions nobody converts, holds up no other.
func (t *Templates) start(ctx context.Context) error {
	var err error
	for ctx.Err() == nil {
		if err = t.discover(ctx); err == nil {
			break
		}
		klog.FromContext(ctx).Info("cannot discover the kinds of the cell, trying again", "err", err)
		pause(ctx, time.Second)
	}
	t.mu.RLock()
	stores := maps.Clone(t.kinds)
	t.mu.RUnlock()
	for _, f := range stores {
		select {
		case <-f.store.Synced():
		case <-f.refused:
			klog.FromContext(ctx).Info("starting without a kind that cannot be listed; it is tried on", "kind", f.kind.GroupVersionKind)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	go t.rediscover(ctx)
	return ctx.Err()
}

// Rediscover asks the cell soon for its kinds.
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

// discover follows the kinds that have come and lets go of those that have gone.
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
			t.kinds[gvk] = t.follow(ctx, kind)
		}
	}
	for gvk, f := range t.kinds {
		// A group that did not answer is not gone.
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

// neverTemplates tells which kinds are the business of a control plane, or of each cluster by itself.
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

// follow keeps up with the objects of a kind. It is called with the lock held.
func (t *Templates) follow(ctx context.Context, kind *Kind) *followed {
	ctx, cancel := context.WithCancel(ctx)
	store := newTemplateStore(kind)
	store.Subscribe(func(key Key, old, now *Template) {
		for _, subscriber := range t.subscribers {
			subscriber(TemplateKey{GroupVersionKind: kind.GroupVersionKind, Key: key}, old, now)
		}
	})
	logger := klog.FromContext(ctx)
	source := fleet.ResourceSource(t.cell.discovery.RESTClient(), kind.GVR(), fleet.DecodeUnstructured, store.knows)
	refused, refusals := make(chan struct{}), 0
	go fleet.Follow(ctx, source, reserved{store}, func(err error) {
		logger.V(2).Info("cannot follow templates, trying again", "kind", kind.Kind, "err", err)
		if fleet.Unreachable(err) {
			return
		}
		if refusals++; refusals == mostRefusals {
			close(refused)
		}
	})
	return &followed{kind: kind, store: store, cancel: cancel, refused: refused}
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

// reserved keeps what belongs to the control plane itself out of a store, and what every cluster makes by itself.
type reserved struct{ *Store[Template] }

// Set passes on what is neither in a reserved namespace nor made by every cluster.
func (r reserved) Set(obj runtime.Object) {
	m, ok := obj.(metav1.Object)
	if !ok || names.IsReservedNamespace(m.GetNamespace()) || strings.HasPrefix(m.GetNamespace(), "kube-") {
		return
	}
	if m.GetName() == rootCAConfigMap && obj.GetObjectKind().GroupVersionKind().Kind == "ConfigMap" {
		return
	}
	r.Store.Set(obj)
}

// rootCAConfigMap is in every namespace of every cluster, with the cluster's own authority.
const rootCAConfigMap = "kube-root-ca.crt"

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
