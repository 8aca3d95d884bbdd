package dependencies

import (
	"context"
	"errors"
	"fmt"
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
func (d *Controller) attach(ctx context.Context, needing *workv1alpha2.ResourceBinding, dependency *Template) error {
	key := dependency.Key.Binding()
	holder := d.router.ForObject(dependency.Key.Namespace, dependency.Key.Name)
	old, err := holder.Binding(ctx, key)
	if err != nil {
		return err
	}
	if old != nil && old.DeletionTimestamp != nil {
		return queue.Later{After: time.Second} // the binding of an earlier one of that name is still being removed
	}
	attached := newAttached(dependency)
	if old != nil {
		attached = old.DeepCopy()
	}
	metav1.SetMetaDataLabel(&attached.ObjectMeta, labelOf(keyOf(needing)), bindingID(needing))
	setSnapshot(attached, needing)
	if d.combine(attached, needing) {
		d.recorder.Failed(events.OfBinding(attached), "combine", names.EventDependencyPolicyConflict,
			fmt.Sprintf("bindings that need %s differ about conflictResolution or preserveResourcesOnDeletion; Overwrite and true win", dependency.Key))
	}
	switch {
	case old == nil:
		_, err = holder.CreateBinding(ctx, attached)
	case !apiequality.Semantic.DeepEqual(old.Spec, attached.Spec) || !apiequality.Semantic.DeepEqual(old.Labels, attached.Labels):
		_, err = holder.UpdateBinding(ctx, attached)
	}
	return err
}

func newAttached(t *Template) *workv1alpha2.ResourceBinding {
	key := t.Key.Binding()
	apiVersion, kind := t.Key.ToAPIVersionAndKind()
	idLabel, finalizer := names.ResourceBindingPermanentIDLabel, names.BindingFinalizer
	if key.Namespace == "" {
		idLabel, finalizer = names.ClusterResourceBindingPermanentIDLabel, names.ClusterResourceBindingFinalizer
	}
	return &workv1alpha2.ResourceBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{idLabel: uuid.NewString()}, Finalizers: []string{finalizer},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: t.Key.Name, UID: t.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}},
		},
		Spec: workv1alpha2.ResourceBindingSpec{Resource: workv1alpha2.ObjectReference{
			APIVersion: apiVersion, Kind: kind, Namespace: t.Key.Namespace, Name: t.Key.Name, UID: t.UID, ResourceVersion: t.Version,
		}},
	}
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
func (d *Controller) detach(ctx context.Context, needing cell.Key, keep map[cell.Key]bool) error {
	label := labelOf(needing)
	var errs []error
	for _, holder := range d.router.All() {
		attached, err := holder.Attached(ctx, label)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, binding := range attached {
			if keep[keyOf(binding)] || binding.DeletionTimestamp != nil {
				continue
			}
			errs = append(errs, d.letGo(ctx, holder, binding, needing, label))
		}
	}
	return errors.Join(errs...)
}

func (d *Controller) letGo(ctx context.Context, holder Holder, binding *workv1alpha2.ResourceBinding, needing cell.Key, label string) error {
	binding = binding.DeepCopy()
	delete(binding.Labels, label)
	if i := indexOf(binding, needing); i >= 0 {
		binding.Spec.RequiredBy = slices.Delete(binding.Spec.RequiredBy, i, i+1)
	}
	if len(binding.Spec.RequiredBy) == 0 && !hasPolicy(binding) {
		return holder.DeleteBinding(ctx, binding)
	}
	_, err := holder.UpdateBinding(ctx, binding)
	return err
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
