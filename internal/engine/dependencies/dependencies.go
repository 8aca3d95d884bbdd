// Package dependencies propagates what templates refer to. It attaches a binding to each ConfigMap, Secret or other
// object that a template needs, and records the clusters that need it.
package dependencies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/queue"
)

// Interpreter returns the dependencies of templates.
type Interpreter interface {
	Dependencies(ctx context.Context, obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error)
}

// recheck is the interval at which references by label are resolved again: other cells send no events for new
// matches.
const recheck = 30 * time.Second

// Controller attaches bindings to dependencies.
type Controller struct {
	cell        *cell.Cell
	local       local
	remotes     *Remotes
	interpreter Interpreter
	recorder    *events.Recorder
	queue       *queue.Queue[cell.Key]

	mu     sync.Mutex
	wanted map[schema.GroupVersionKind]map[cell.Key][]reference // by kind and by dependent binding
	refers map[cell.Key][]schema.GroupVersionKind
}

// reference is a compiled DependentObjectReference.
type reference struct {
	gvk             schema.GroupVersionKind
	namespace, name string
	selector        labels.Selector // nil for a reference by name
}

// New returns a controller that watches a cell. Remotes may be nil: then the cell holds all objects.
func New(c *cell.Cell, remotes *Remotes, interpreter Interpreter, recorder *events.Recorder) *Controller {
	d := &Controller{
		cell: c, local: local{c}, remotes: remotes, interpreter: interpreter, recorder: recorder, queue: queue.New[cell.Key]("dependencies"),
		wanted: map[schema.GroupVersionKind]map[cell.Key][]reference{}, refers: map[cell.Key][]schema.GroupVersionKind{},
	}
	c.SubscribeBindings(func(key cell.Key, old, now *workv1alpha2.ResourceBinding) {
		if (concerns(old) || concerns(now)) && !onlyStatus(old, now) {
			d.queue.AddNow(key)
		}
	})
	c.Templates.Subscribe(d.templateChanged)
	return d
}

// concerns reports whether a binding propagates its dependencies, or did so before.
func concerns(binding *workv1alpha2.ResourceBinding) bool {
	return binding != nil && (binding.Spec.PropagateDeps || binding.Annotations[names.ResourceBindingDependenciesAnnotation] != "")
}

// onlyStatus reports whether only the status of a binding changed.
func onlyStatus(old, now *workv1alpha2.ResourceBinding) bool {
	return old != nil && now != nil && old.Generation == now.Generation && maps.Equal(old.Annotations, now.Annotations) &&
		maps.Equal(old.Labels, now.Labels) && (old.DeletionTimestamp == nil) == (now.DeletionTimestamp == nil)
}

// Reinterpret queues the bindings whose template is of a kind for which concerned returns true.
func (d *Controller) Reinterpret(concerned func(schema.GroupVersionKind) bool) {
	for _, t := range d.cell.Templates.OfKinds(concerned) {
		if key := t.Key().Binding(); concerns(d.cell.Binding(key)) {
			d.queue.Add(key)
		}
	}
}

// templateChanged queues the binding of a changed template and the bindings that refer to the template.
func (d *Controller) templateChanged(key cell.TemplateKey, old, now *cell.Template) {
	if old != nil && now != nil && old.UID == now.UID && old.Digest == now.Digest && old.Deleting == now.Deleting {
		return
	}
	if binding := d.cell.Binding(key.Binding()); concerns(binding) {
		d.queue.AddNow(key.Binding())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for binding, references := range d.wanted[key.GroupVersionKind] {
		if slices.ContainsFunc(references, func(r reference) bool { return r.touches(key, old) || r.touches(key, now) }) {
			d.queue.Add(binding)
		}
	}
}

func (r *reference) touches(key cell.TemplateKey, t *cell.Template) bool {
	if t == nil || r.namespace != key.Namespace {
		return false
	}
	if r.selector != nil {
		return r.selector.Matches(labels.Set(t.Labels))
	}
	return r.name == key.Name
}

// stores returns all stores in which bindings may be attached.
func (d *Controller) stores() []store {
	all := []store{d.local}
	for _, p := range d.remotes.remotes() {
		all = append(all, p)
	}
	return all
}

// Run reconciles bindings until the context ends.
func (d *Controller) Run(ctx context.Context, workers int) {
	d.remotes.watch(ctx, d.lost)
	d.queue.Run(ctx, workers, d.Reconcile)
}

// lost queues the dependents of a deleted attached binding: its object may be created again.
func (d *Controller) lost(attached *workv1alpha2.ResourceBinding) {
	for i := range attached.Spec.RequiredBy {
		d.queue.AddNow(cell.Key{Namespace: attached.Spec.RequiredBy[i].Namespace, Name: attached.Spec.RequiredBy[i].Name})
	}
}

// Reconcile attaches the dependencies of a binding's template and detaches what the template no longer refers to.
func (d *Controller) Reconcile(ctx context.Context, key cell.Key) error {
	binding := d.cell.Binding(key)
	switch {
	case binding == nil:
		d.remember(key, nil) // its finalizer detached everything, or it moved to another cell
		return nil
	case binding.Labels[names.RebalanceStatusLabel] != "":
		return nil
	case binding.DeletionTimestamp != nil || !binding.Spec.PropagateDeps:
		d.remember(key, nil)
		return d.release(ctx, binding)
	}

	template := d.template(binding)
	if template == nil {
		return nil // not in the cache yet, or deleted: then the binding is deleted too and detaches everything
	}
	if template.ReportsOnly(binding) {
		return nil // what is attached stays as it is, and nothing else is written to clusters
	}

	// 1. Get the references of the template.
	references, list, err := d.references(ctx, template)
	if err != nil {
		for _, about := range events.Both(d.cell, binding) {
			d.recorder.Failed(about, "references", names.EventGetDependenciesFailed, err.Error())
		}
		return err
	}
	d.remember(key, references)
	annotated, err := d.annotate(ctx, binding, list)
	if err != nil {
		return err
	}
	changed := annotated != binding
	binding = annotated
	for _, about := range events.Both(d.cell, binding) {
		d.recorder.Also(about, "references", names.EventGetDependenciesSucceed, "the dependencies of the template are known", changed)
	}

	// 2. Resolve them.
	found, recheckLater, err := d.resolve(ctx, references)
	if err != nil {
		return d.failed(binding, err)
	}

	// 3. Attach the dependencies found and detach the others.
	var errs []error
	attached := map[cell.Key]bool{}
	for _, dependency := range found {
		if dependency.Binding() == key {
			continue // a reference to itself
		}
		attached[dependency.Binding()] = true
		errs = append(errs, d.attach(ctx, binding, dependency))
	}
	errs = append(errs, d.detach(ctx, key, func(other *workv1alpha2.ResourceBinding) bool {
		return attached[keyOf(other)] || d.unsure(references, other)
	}))
	if err := errors.Join(errs...); err != nil {
		return d.failed(binding, err)
	}
	d.recorder.Also(events.OfBinding(binding), "dependencies", names.EventSyncScheduleResultToDependenciesSucceed, "the dependencies are attached", changed)
	if recheckLater {
		return queue.Later{After: recheck}
	}
	return nil
}

// release detaches everything from a binding and removes its finalizer.
func (d *Controller) release(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	if err := d.detach(ctx, keyOf(binding), func(*workv1alpha2.ResourceBinding) bool { return false }); err != nil {
		return d.failed(binding, err)
	}
	if !slices.Contains(binding.Finalizers, names.BindingDependenciesFinalizer) {
		return nil
	}
	binding = binding.DeepCopy()
	binding.Finalizers = slices.DeleteFunc(binding.Finalizers, func(f string) bool { return f == names.BindingDependenciesFinalizer })
	if _, err := d.cell.UpdateBinding(ctx, binding); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (d *Controller) failed(binding *workv1alpha2.ResourceBinding, err error) error {
	if !apierrors.IsConflict(err) && !errors.As(err, &queue.Later{}) {
		d.recorder.Failed(events.OfBinding(binding), "dependencies", names.EventSyncScheduleResultToDependenciesFailed, err.Error())
	}
	return err
}

// template returns the template of a binding, or nil if it is not cached.
func (d *Controller) template(binding *workv1alpha2.ResourceBinding) *cell.Template {
	ref := &binding.Spec.Resource
	return d.cell.Templates.Get(cell.TemplateKey{GroupVersionKind: kindOf(binding), Key: cell.Key{Namespace: ref.Namespace, Name: ref.Name}})
}

func kindOf(binding *workv1alpha2.ResourceBinding) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(binding.Spec.Resource.APIVersion, binding.Spec.Resource.Kind)
}

// unsure reports whether an attached binding is of a kind that is referred to but not served now. Its objects may
// still exist, so it is not detached.
func (d *Controller) unsure(references []reference, attached *workv1alpha2.ResourceBinding) bool {
	kind := kindOf(attached)
	return slices.ContainsFunc(references, func(r reference) bool { return r.gvk == kind }) && !d.cell.Templates.Known(kind)
}

// references asks the interpreter for the references of a template. It returns them compiled and as the JSON kept
// on the binding.
func (d *Controller) references(ctx context.Context, template *cell.Template) ([]reference, string, error) {
	obj, err := template.Object()
	if err != nil {
		return nil, "", err
	}
	list, err := d.interpreter.Dependencies(ctx, obj)
	if err != nil {
		return nil, "", err
	}
	var references []reference
	for i := range list {
		if isRootCA(&list[i]) {
			continue
		}
		r := reference{gvk: schema.FromAPIVersionAndKind(list[i].APIVersion, list[i].Kind), namespace: list[i].Namespace, name: list[i].Name}
		if r.name == "" && list[i].LabelSelector != nil {
			if r.selector, err = metav1.LabelSelectorAsSelector(list[i].LabelSelector); err != nil {
				return nil, "", fmt.Errorf("dependency %d of %s: %w", i, template.Key(), err)
			}
		}
		references = append(references, r)
	}
	if len(list) == 0 {
		return nil, "", nil
	}
	text, err := json.Marshal(list)
	return references, string(text), err
}

// isRootCA reports the ConfigMap that every cluster has in every namespace, with its own CA. It must not be propagated.
func isRootCA(r *configv1alpha1.DependentObjectReference) bool {
	return r.APIVersion == "v1" && r.Kind == "ConfigMap" && r.Name == cell.RootCAConfigMap
}

// remember stores which references a binding has.
func (d *Controller) remember(binding cell.Key, references []reference) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, gvk := range d.refers[binding] {
		delete(d.wanted[gvk], binding)
		if len(d.wanted[gvk]) == 0 {
			delete(d.wanted, gvk)
		}
	}
	delete(d.refers, binding)
	for _, r := range references {
		if d.wanted[r.gvk] == nil {
			d.wanted[r.gvk] = map[cell.Key][]reference{}
		}
		d.wanted[r.gvk][binding] = append(d.wanted[r.gvk][binding], r)
		d.refers[binding] = append(d.refers[binding], r.gvk)
	}
}

// annotate stores the list of dependencies on the binding.
func (d *Controller) annotate(ctx context.Context, binding *workv1alpha2.ResourceBinding, list string) (*workv1alpha2.ResourceBinding, error) {
	if binding.Annotations[names.ResourceBindingDependenciesAnnotation] == list {
		return binding, nil
	}
	binding = binding.DeepCopy()
	if list == "" {
		delete(binding.Annotations, names.ResourceBindingDependenciesAnnotation)
	} else {
		metav1.SetMetaDataAnnotation(&binding.ObjectMeta, names.ResourceBindingDependenciesAnnotation, list)
	}
	return d.cell.UpdateBinding(ctx, binding)
}

// resolve returns the objects that the references select, and whether later matches would not be reported by an
// event.
func (d *Controller) resolve(ctx context.Context, references []reference) (found []*dependency, more bool, err error) {
	for _, r := range references {
		kind := d.cell.Templates.Kind(r.gvk)
		elsewhere := d.remotes.of(kind, r.namespace)
		if r.selector == nil {
			key := cell.TemplateKey{GroupVersionKind: r.gvk, Key: cell.Key{Namespace: r.namespace, Name: r.name}}
			if one := d.local.template(key); one != nil {
				found = append(found, one)
			} else if elsewhere != nil {
				found = append(found, elsewhere.named(key))
			}
			continue
		}
		here := d.local.templates(r.gvk, r.namespace, r.selector)
		found = append(found, here...)
		if elsewhere == nil || kind == nil {
			continue
		}
		more = true
		all, err := elsewhere.templates(ctx, kind, r.namespace, r.selector)
		if err != nil {
			return nil, false, err
		}
		for _, one := range all {
			if !slices.ContainsFunc(here, func(h *dependency) bool { return h.TemplateKey == one.TemplateKey }) {
				found = append(found, one)
			}
		}
	}
	return found, more, nil
}

// labelOf returns the label on the bindings attached to a binding.
func labelOf(binding cell.Key) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(binding.String())) // a hash never returns an error
	return names.DependedByLabelPrefix + rand.SafeEncodeString(strconv.FormatUint(uint64(hash.Sum32()), 10))
}
