package detector

import (
	"errors"
	"sync"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/exposure"
	"github.com/cellplane/cellplane/internal/engine/policies"
)

// subscribe watches templates, policies, override policies, priority classes, and bindings that somebody else changes.
func (d *Controller) subscribe() {
	d.cell.Templates.Subscribe(d.templateChanged)
	d.cell.Policies.Subscribe(func(key cell.Key, _, now *policyv1alpha1.PropagationPolicy) {
		if now == nil || now.DeletionTimestamp != nil || d.options.PermanentIDs && now.Labels[names.PropagationPolicyPermanentIDLabel] == "" {
			d.policyChanged(d.index.Unset(key.Namespace, key.Name), nil)
			return
		}
		compiled := policies.Compile(now)
		d.reportInvalid("PropagationPolicy", now, compiled.Invalid)
		d.policyChanged(d.index.Set(compiled), compiled)
	})
	d.cell.ClusterPolicies.Subscribe(func(key cell.Key, _, now *policyv1alpha1.ClusterPropagationPolicy) {
		if now == nil || now.DeletionTimestamp != nil || d.options.PermanentIDs && now.Labels[names.ClusterPropagationPolicyPermanentIDLabel] == "" {
			d.policyChanged(d.index.Unset("", key.Name), nil)
			return
		}
		compiled := policies.CompileCluster(now)
		d.reportInvalid("ClusterPropagationPolicy", now, compiled.Invalid)
		d.policyChanged(d.index.Set(compiled), compiled)
	})
	d.cell.OverridePolicies.Subscribe(func(key cell.Key, old, _ *policyv1alpha1.OverridePolicy) {
		if old == nil {
			d.enqueue(d.waiting.created(overrideNamed(key.Namespace, key.Name)))
		}
	})
	d.cell.ClusterOverridePolicies.Subscribe(func(key cell.Key, old, _ *policyv1alpha1.ClusterOverridePolicy) {
		if old == nil {
			d.enqueue(d.waiting.created(overrideNamed("", key.Name)))
		}
	})
	d.cell.PriorityClasses.Subscribe(func(key cell.Key, _, now *schedulingv1.PriorityClass) {
		if now != nil {
			d.enqueue(d.waiting.created(priorityClassNamed(key.Name)))
		}
	})
	d.cell.SubscribeBindings(d.bindingChanged)
}

// reportInvalid records an event for invalid selectors; the rest of the policy is in effect.
func (d *Controller) reportInvalid(kind string, policy metav1.Object, invalid []error) {
	if len(invalid) > 0 {
		d.recorder.Failed(events.OfPolicy(kind, policy), "selectors", names.EventApplyPolicyFailed, errors.Join(invalid...).Error())
	}
}

func (d *Controller) enqueue(keys []cell.TemplateKey) {
	for _, key := range keys {
		d.queue.AddNow(key)
	}
}

// Reinterpret enqueues the propagated templates of the affected kinds, because their interpreter has changed.
func (d *Controller) Reinterpret(affected func(schema.GroupVersionKind) bool) {
	for _, t := range d.cell.Templates.OfKinds(affected) {
		if d.cell.Binding(t.Key().Binding()) != nil {
			d.queue.Add(t.Key())
		}
	}
}

// templateChanged ignores changes that do not matter for propagation, like status.
func (d *Controller) templateChanged(key cell.TemplateKey, old, now *cell.Template) {
	if old != nil && now != nil && old.UID == now.UID && old.Digest == now.Digest && old.Claim == now.Claim &&
		old.Deleting == now.Deleting && old.Frozen == now.Frozen {
		return
	}
	if key.GroupVersionKind == exposure.MultiClusterServiceKind {
		d.queue.AddNow(cell.TemplateKey{GroupVersionKind: cell.ServiceKind, Key: key.Key}) // it places the Service of its name
	}
	switch {
	case now == nil:
	case old != nil && old.Digest != now.Digest:
		d.touched.touch(key, touch{now.Digest, changedByUser})
	case old == nil && (d.cell.Templates.Known(key.GroupVersionKind) || d.cell.Binding(key.Binding()) == nil):
		d.touched.touch(key, touch{now.Digest, createdByUser}) // now, or while no engine ran
	}
	d.queue.AddNow(key)
}

// policyChanged enqueues the templates that the policy has, had or may get, or may lose because its priority has
// decreased.
func (d *Controller) policyChanged(old, now *policies.Policy) {
	seen := map[cell.TemplateKey]struct{}{}
	enqueue := func(t *cell.Template) {
		key := t.Key()
		if _, done := seen[key]; !done {
			seen[key] = struct{}{}
			d.queue.AddNow(key)
		}
	}
	for _, policy := range []*policies.Policy{old, now} {
		if policy == nil {
			continue
		}
		for _, t := range d.cell.Templates.ClaimedBy(policy.ID) {
			enqueue(t)
		}
	}
	for _, scope := range now.Scopes() {
		if scope.Name != "" && (scope.Namespace != "" || !d.namespaced(scope.GroupVersionKind)) {
			if t := d.cell.Templates.Get(cell.TemplateKey{GroupVersionKind: scope.GroupVersionKind, Key: cell.Key{Namespace: scope.Namespace, Name: scope.Name}}); t != nil {
				enqueue(t)
			}
			continue
		}
		for _, t := range d.cell.Templates.OfKind(scope.GroupVersionKind, scope.Namespace) {
			if now.Selects(policies.SubjectOf(t)) {
				enqueue(t)
			}
		}
	}
}

func (d *Controller) namespaced(gvk schema.GroupVersionKind) bool {
	kind := d.cell.Templates.Kind(gvk)
	return kind == nil || kind.Namespaced
}

// bindingChanged restores bindings that somebody deleted or changed, and finds those whose template is deleted.
func (d *Controller) bindingChanged(_ cell.Key, old, now *workv1alpha2.ResourceBinding) {
	binding := now
	if binding == nil {
		binding = old
	}
	if old != nil && now != nil && old.Generation == now.Generation && sameClaim(old, now) {
		return
	}
	gv, err := schema.ParseGroupVersion(binding.Spec.Resource.APIVersion)
	if err != nil {
		return
	}
	d.queue.Add(cell.TemplateKey{
		GroupVersionKind: gv.WithKind(binding.Spec.Resource.Kind),
		Key:              cell.Key{Namespace: binding.Spec.Resource.Namespace, Name: binding.Spec.Resource.Name},
	})
}

func sameClaim(a, b *workv1alpha2.ResourceBinding) bool {
	return cell.ClaimOf(a.Labels, a.Annotations) == cell.ClaimOf(b.Labels, b.Annotations)
}

// waiting remembers which templates wait for an object that does not exist yet.
type waiting struct {
	mu        sync.Mutex
	templates map[prerequisite]map[cell.TemplateKey]struct{}
}

// prerequisite is an object that templates wait for.
type prerequisite struct {
	kind string
	cell.Key
}

func overrideNamed(namespace, name string) prerequisite {
	return prerequisite{"override", cell.Key{Namespace: namespace, Name: name}}
}

func priorityClassNamed(name string) prerequisite {
	return prerequisite{"priorityclass", cell.Key{Name: name}}
}

func newWaiting() *waiting {
	return &waiting{templates: map[prerequisite]map[cell.TemplateKey]struct{}{}}
}

func (w *waiting) add(what prerequisite, template cell.TemplateKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.templates[what] == nil {
		w.templates[what] = map[cell.TemplateKey]struct{}{}
	}
	w.templates[what][template] = struct{}{}
}

// created returns the templates that waited for an object.
func (w *waiting) created(what prerequisite) []cell.TemplateKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	var templates []cell.TemplateKey
	for template := range w.templates[what] {
		templates = append(templates, template)
	}
	delete(w.templates, what)
	return templates
}

func (w *waiting) forget(template cell.TemplateKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for what, templates := range w.templates {
		delete(templates, template)
		if len(templates) == 0 {
			delete(w.templates, what)
		}
	}
}

// touched remembers what users have done to templates, for lazy policies.
type touched struct {
	mu      sync.Mutex
	touches map[cell.TemplateKey]touch
}

// touch is what a user has done to a template that had the digest afterwards.
type touch struct {
	digest uint64
	how    action
}

type action int

const (
	nothing action = iota
	createdByUser
	changedByUser
)

func newTouched() *touched { return &touched{touches: map[cell.TemplateKey]touch{}} }

func (t *touched) touch(key cell.TemplateKey, what touch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touches[key] = what
}

// last returns what a user last did to a template with a digest.
func (t *touched) last(key cell.TemplateKey, digest uint64) action {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last := t.touches[key]; last.digest == digest {
		return last.how
	}
	return nothing
}

// done forgets an action that has taken effect.
func (t *touched) done(key cell.TemplateKey, digest uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.touches[key].digest == digest {
		delete(t.touches, key)
	}
}

func (t *touched) forget(key cell.TemplateKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.touches, key)
}
