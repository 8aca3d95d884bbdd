package binding

import (
	"maps"
	"slices"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/override"
)

// subscribe watches bindings, their Works, and clusters. The detector enqueues the bindings of changed templates.
func (b *Controller) subscribe() {
	b.cell.SubscribeBindings(func(key cell.Key, old, now *workv1alpha2.ResourceBinding) {
		if now != nil {
			b.left.trim(now)
		}
		if old != nil && now != nil && old.Generation == now.Generation && maps.Equal(old.Labels, now.Labels) &&
			maps.Equal(old.Annotations, now.Annotations) && slices.Equal(old.Finalizers, now.Finalizers) &&
			(old.DeletionTimestamp == nil) == (now.DeletionTimestamp == nil) {
			return // only the status has changed
		}
		b.queue.AddNow(key)
	})
	b.cell.Works.Subscribe(func(_ cell.Key, old, now *cell.Work) {
		work := now
		if work == nil {
			work = old
		}
		if work.Binding.Name == "" || (old != nil && now != nil && old.Digest == now.Digest && old.Deleting == now.Deleting) {
			return
		}
		b.workChanged(old, now)
		b.queue.Add(work.Binding)
	})
	b.cell.Clusters.Subscribe(func(key cell.Key, old, now *clusterv1alpha1.Cluster) {
		if old != nil && now != nil && sameForRendering(old, now) {
			return
		}
		for _, binding := range b.cell.BindingsIn(key.Name) {
			b.queue.Add(binding)
		}
	})
}

// sameForRendering compares what overrides select by.
func sameForRendering(a, b *clusterv1alpha1.Cluster) bool {
	return apiequality.Semantic.DeepEqual(&a.Spec, &b.Spec) && maps.Equal(a.Labels, b.Labels) &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil)
}

// Overrides returns the current override policies.
func (b *Controller) Overrides() *override.Set { return b.set.Load() }

// overrides holds the compiled override policies.
type overrides struct {
	mu       sync.Mutex
	compiled map[override.Reference]*override.Policy
}

func (o *overrides) init(b *Controller) {
	o.compiled = map[override.Reference]*override.Policy{}
	b.cell.OverridePolicies.Subscribe(func(key cell.Key, _, now *policyv1alpha1.OverridePolicy) {
		var compiled *override.Policy
		if now != nil {
			compiled = override.Compile(now)
		}
		b.overrideChanged(override.Reference{Namespace: key.Namespace, Name: key.Name}, compiled)
	})
	b.cell.ClusterOverridePolicies.Subscribe(func(key cell.Key, _, now *policyv1alpha1.ClusterOverridePolicy) {
		var compiled *override.Policy
		if now != nil {
			compiled = override.CompileCluster(now)
		}
		b.overrideChanged(override.Reference{Name: key.Name}, compiled)
	})
}

// overrideChanged compiles a policy and enqueues the bindings that it affects or affected before.
func (b *Controller) overrideChanged(ref override.Reference, now *override.Policy) {
	o := &b.overrides
	o.mu.Lock()
	old := o.compiled[ref]
	if now == nil {
		delete(o.compiled, ref)
	} else {
		o.compiled[ref] = now
	}
	b.set.Store(override.NewSet(slices.Collect(maps.Values(o.compiled))...))
	o.mu.Unlock()
	b.enqueueSelected(ref.Namespace, func(t *cell.Template) bool {
		outline := outlineOf(t)
		return old.Selects(outline) || now.Selects(outline)
	})
}

// enqueueSelected enqueues the bindings of the templates that a policy selects, in a namespace, or in all if it is empty.
func (b *Controller) enqueueSelected(namespace string, selects func(*cell.Template) bool) {
	for _, key := range b.cell.BindingKeys() {
		binding := b.cell.Binding(key)
		if binding == nil || namespace != "" && namespace != key.Namespace {
			continue
		}
		if template := b.template(binding); template != nil && selects(template) {
			b.queue.AddNow(key)
		}
	}
}

// outlineOf returns the part of a template that selectors match.
func outlineOf(t *cell.Template) *unstructured.Unstructured {
	outline := &unstructured.Unstructured{Object: map[string]any{}}
	outline.SetGroupVersionKind(t.Kind.GroupVersionKind)
	outline.SetNamespace(t.Namespace)
	outline.SetName(t.Name)
	outline.SetLabels(t.Labels)
	return outline
}
