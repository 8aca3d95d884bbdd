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

// attach tells the binding of a dependency which clusters need it. A dependency without a binding gets one.
func (d *Controller) attach(ctx context.Context, needing *workv1alpha2.ResourceBinding, dependency *dependency) error {
	key := dependency.Binding()
	if p, elsewhere := dependency.in.(*place); elsewhere {
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
		return queue.Later{After: time.Second} // the binding of an earlier one of that name is still being removed
	}
	attached, differ := d.attachedTo(needing, dependency, old)
	if differ {
		d.recorder.Failed(events.OfBinding(attached), "combine", names.EventDependencyPolicyConflict,
			fmt.Sprintf("bindings that need %s differ about conflictResolution or preserveResourcesOnDeletion; Overwrite and true win", dependency.TemplateKey))
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

// attachedTo returns the binding of a dependency as it should be, and whether those that need it differ about it.
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

// same compares what attaching changes.
func same(a, b *workv1alpha2.ResourceBinding) bool {
	return apiequality.Semantic.DeepEqual(a.Spec, b.Spec) && maps.Equal(a.Labels, b.Labels)
}

// newAttached returns a binding for a dependency. It has no owner before the engine of the dependency knows that.
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

// setSnapshot records which clusters a binding needs the attached one in.
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

// combine brings the wishes of the bindings that need a dependency together, unless it has a policy of its own, and
// reports whether they differ: whoever wants to overwrite or to preserve wins.
func (d *Controller) combine(attached, needing *workv1alpha2.ResourceBinding) (differ bool) {
	if hasPolicy(attached) {
		return false
	}
	resolution, preserve := policyv1alpha1.ConflictAbort, false
	var resolutions, preserves []any
	for i := range attached.Spec.RequiredBy {
		other := needing
		if s := &attached.Spec.RequiredBy[i]; s.Name != needing.Name || s.Namespace != needing.Namespace {
			if other = d.cell.Binding(cell.Key{Namespace: s.Namespace, Name: s.Name}); other == nil {
				// It lives in another cell, and has had its say.
				if attached.Spec.ConflictResolution == policyv1alpha1.ConflictOverwrite {
					resolution = policyv1alpha1.ConflictOverwrite
				}
				preserve = preserve || ptr.Deref(attached.Spec.PreserveResourcesOnDeletion, false)
				continue
			}
		}
		overwrites := other.Spec.ConflictResolution == policyv1alpha1.ConflictOverwrite
		preserved := ptr.Deref(other.Spec.PreserveResourcesOnDeletion, false)
		resolutions, preserves = append(resolutions, overwrites), append(preserves, preserved)
		if overwrites {
			resolution = policyv1alpha1.ConflictOverwrite
		}
		preserve = preserve || preserved
	}
	attached.Spec.ConflictResolution = resolution
	attached.Spec.PreserveResourcesOnDeletion = nil
	if preserve {
		attached.Spec.PreserveResourcesOnDeletion = ptr.To(true)
	}
	return len(slices.Compact(resolutions)) > 1 || len(slices.Compact(preserves)) > 1
}

func hasPolicy(binding *workv1alpha2.ResourceBinding) bool {
	return !cell.ClaimOf(binding.Labels, binding.Annotations).Empty() || binding.Spec.Placement != nil
}

// detach lets go of the bindings attached to one, but those to keep. Who is needed by nobody else and has no policy is
// removed.
func (d *Controller) detach(ctx context.Context, needing cell.Key, keep func(*workv1alpha2.ResourceBinding) bool) error {
	label := labelOf(needing)
	var errs []error
	for _, holder := range d.holders() {
		attached, all := holder.attached(label)
		if !all {
			errs = append(errs, queue.Later{After: time.Second})
		}
		for _, binding := range attached {
			if binding.DeletionTimestamp == nil && !keep(binding) {
				errs = append(errs, d.letGo(ctx, holder, keyOf(binding), needing, label))
			}
		}
	}
	return errors.Join(errs...)
}

func (d *Controller) letGo(ctx context.Context, holder holder, key, needing cell.Key, label string) error {
	binding, err := holder.binding(ctx, key)
	if err != nil || binding == nil || binding.DeletionTimestamp != nil || binding.Labels[label] == "" {
		return err
	}
	binding = binding.DeepCopy()
	delete(binding.Labels, label)
	if i := indexOf(binding, needing); i >= 0 {
		binding.Spec.RequiredBy = slices.Delete(binding.Spec.RequiredBy, i, i+1)
	}
	if len(binding.Spec.RequiredBy) == 0 && !hasPolicy(binding) {
		return holder.remove(ctx, binding)
	}
	if !d.neededFromHere(binding) {
		delete(binding.Labels, holder.mark())
	}
	return holder.update(ctx, binding)
}

// neededFromHere tells whether a binding of this cell needs another one.
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
