package dependencies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/queue"
)

// attach records in the binding of a dependency which clusters need it. It creates the binding if there is none.
func (d *Controller) attach(ctx context.Context, needing *workv1alpha2.ResourceBinding, dependency *dependency) error {
	key := dependency.Binding()
	if p, elsewhere := dependency.in.(*remote); elsewhere {
		if seen := p.known.get(key); seen != nil && seen.DeletionTimestamp == nil {
			if wanted, _ := d.attachedTo(needing, dependency, seen); same(seen, wanted) {
				return nil
			}
		}
	}
	old, err := dependency.in.binding(ctx, key)
	if err != nil {
		return err
	}
	if old != nil && old.DeletionTimestamp != nil {
		return queue.Later{After: time.Second} // an older binding of this name is still being deleted
	}
	attached, differ := d.attachedTo(needing, dependency, old)
	if differ {
		d.recorder.Failed(events.OfBinding(attached), "combine", names.EventDependencyPolicyConflict,
			fmt.Sprintf("bindings that depend on %s have different values of conflictResolution or preserveResourcesOnDeletion; using Overwrite and true", dependency.TemplateKey))
	}
	switch {
	case old == nil:
		return dependency.in.create(ctx, attached)
	case same(old, attached):
		return nil
	default:
		return dependency.in.update(ctx, attached)
	}
}

// attachedTo returns the desired binding of a dependency, and whether its dependents disagree about its settings.
func (d *Controller) attachedTo(needing *workv1alpha2.ResourceBinding, dependency *dependency, old *workv1alpha2.ResourceBinding) (*workv1alpha2.ResourceBinding, bool) {
	attached := newAttached(dependency)
	if old != nil {
		attached = old.DeepCopy()
	}
	metav1.SetMetaDataLabel(&attached.ObjectMeta, labelOf(keyOf(needing)), bindingID(needing))
	if mark := dependency.in.mark(); mark != "" {
		metav1.SetMetaDataLabel(&attached.ObjectMeta, mark, "true")
	}
	setSnapshot(attached, needing)
	return attached, d.combine(attached, needing)
}

// same compares the fields that attach changes.
func same(a, b *workv1alpha2.ResourceBinding) bool {
	return apiequality.Semantic.DeepEqual(a.Spec, b.Spec) && maps.Equal(a.Labels, b.Labels)
}

// newAttached returns a new binding for a dependency. The engine that holds the dependency sets the owner.
func newAttached(t *dependency) *workv1alpha2.ResourceBinding {
	key := t.Binding()
	apiVersion, kind := t.ToAPIVersionAndKind()
	idLabel, finalizer := names.ResourceBindingPermanentIDLabel, names.BindingFinalizer
	if key.Namespace == "" {
		idLabel, finalizer = names.ClusterResourceBindingPermanentIDLabel, names.ClusterResourceBindingFinalizer
	}
	binding := &workv1alpha2.ResourceBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{idLabel: uuid.NewString()}, Finalizers: []string{finalizer}},
		Spec: workv1alpha2.ResourceBindingSpec{Resource: workv1alpha2.ObjectReference{
			APIVersion: apiVersion, Kind: kind, Namespace: t.Namespace, Name: t.Name, UID: t.uid, ResourceVersion: t.version,
		}},
	}
	if t.uid != "" {
		binding.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: t.Name, UID: t.uid, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}}
	}
	return binding
}

// setSnapshot records the clusters of a dependent binding in the attached one.
func setSnapshot(attached, needing *workv1alpha2.ResourceBinding) {
	snapshot := workv1alpha2.BindingSnapshot{Namespace: needing.Namespace, Name: needing.Name, Clusters: needing.Spec.Clusters}
	if i := indexOf(attached, keyOf(needing)); i >= 0 {
		attached.Spec.RequiredBy[i] = snapshot
		return
	}
	attached.Spec.RequiredBy = append(attached.Spec.RequiredBy, snapshot)
}

func indexOf(attached *workv1alpha2.ResourceBinding, needing cell.Key) int {
	return slices.IndexFunc(attached.Spec.RequiredBy, func(s workv1alpha2.BindingSnapshot) bool {
		return s.Namespace == needing.Namespace && s.Name == needing.Name
	})
}

// combine merges the settings of all bindings that depend on an attached one, unless it has a policy of its own.
// Overwrite and preserve win. It reports whether the settings differ.
func (d *Controller) combine(attached, needing *workv1alpha2.ResourceBinding) (differ bool) {
	if hasPolicy(attached) {
		return false
	}
	resolution := policyv1alpha1.ConflictAbort
	var preserve *bool
	var resolutions, preserves []any
	for i := range attached.Spec.RequiredBy {
		other := needing
		if s := &attached.Spec.RequiredBy[i]; s.Name != needing.Name || s.Namespace != needing.Namespace {
			if other = d.cell.Binding(cell.Key{Namespace: s.Namespace, Name: s.Name}); other == nil {
				// The dependent is in another cell; its settings are already merged.
				if attached.Spec.ConflictResolution == policyv1alpha1.ConflictOverwrite {
					resolution = policyv1alpha1.ConflictOverwrite
				}
				preserve = stronger(preserve, attached.Spec.PreserveResourcesOnDeletion)
				continue
			}
		}
		overwrites := other.Spec.ConflictResolution == policyv1alpha1.ConflictOverwrite
		preserved := ptr.Deref(other.Spec.PreserveResourcesOnDeletion, false)
		resolutions, preserves = append(resolutions, overwrites), append(preserves, preserved)
		if overwrites {
			resolution = policyv1alpha1.ConflictOverwrite
		}
		preserve = stronger(preserve, other.Spec.PreserveResourcesOnDeletion)
	}
	attached.Spec.ConflictResolution = resolution
	attached.Spec.PreserveResourcesOnDeletion = preserve
	return len(slices.Compact(resolutions)) > 1 || len(slices.Compact(preserves)) > 1
}

// stronger returns true if one of two settings is, otherwise false if one of them is.
func stronger(a, b *bool) *bool {
	if a == nil && b == nil {
		return nil
	}
	return ptr.To(ptr.Deref(a, false) || ptr.Deref(b, false))
}

func hasPolicy(binding *workv1alpha2.ResourceBinding) bool {
	return !cell.ClaimOf(binding.Labels, binding.Annotations).Empty() || binding.Spec.Placement != nil
}

// detach removes a binding from the bindings attached to it, except for those to keep. An attached binding without
// other dependents and without a policy is deleted.
func (d *Controller) detach(ctx context.Context, needing cell.Key, keep func(*workv1alpha2.ResourceBinding) bool) error {
	label := labelOf(needing)
	var errs []error
	for _, store := range d.stores() {
		attached, all := store.attached(label)
		if !all {
			errs = append(errs, queue.Later{After: time.Second})
		}
		for _, binding := range attached {
			if binding.DeletionTimestamp == nil && !keep(binding) {
				errs = append(errs, d.detachFrom(ctx, store, keyOf(binding), needing, label))
			}
		}
	}
	return errors.Join(errs...)
}

func (d *Controller) detachFrom(ctx context.Context, store store, key, needing cell.Key, label string) error {
	binding, err := store.binding(ctx, key)
	if err != nil || binding == nil || binding.DeletionTimestamp != nil || binding.Labels[label] == "" {
		return err
	}
	binding = binding.DeepCopy()
	delete(binding.Labels, label)
	if i := indexOf(binding, needing); i >= 0 {
		binding.Spec.RequiredBy = slices.Delete(binding.Spec.RequiredBy, i, i+1)
	}
	if len(binding.Spec.RequiredBy) == 0 && !hasPolicy(binding) {
		return store.remove(ctx, binding)
	}
	if !d.neededFromHere(binding) {
		delete(binding.Labels, store.mark())
	}
	return store.update(ctx, binding)
}

// neededFromHere reports whether a binding of this cell depends on the attached one.
func (d *Controller) neededFromHere(attached *workv1alpha2.ResourceBinding) bool {
	return slices.ContainsFunc(attached.Spec.RequiredBy, func(s workv1alpha2.BindingSnapshot) bool {
		return d.cell.Binding(cell.Key{Namespace: s.Namespace, Name: s.Name}) != nil
	})
}

func keyOf(binding *workv1alpha2.ResourceBinding) cell.Key {
	return cell.Key{Namespace: binding.Namespace, Name: binding.Name}
}

func bindingID(binding *workv1alpha2.ResourceBinding) string {
	if binding.Namespace == "" {
		return binding.Labels[names.ClusterResourceBindingPermanentIDLabel]
	}
	return binding.Labels[names.ResourceBindingPermanentIDLabel]
}
