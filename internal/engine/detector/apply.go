package detector

import (
	"context"
	"fmt"
	"slices"
	"strconv"
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
	"github.com/cellplane/cellplane/internal/engine/policies"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
)

// apply writes the binding that a template and its policy ask for, scheduled, and reports whether anything was written.
func (d *Controller) apply(ctx context.Context, t *cell.Template, policy *policies.Policy) (bool, error) {
	old := d.cell.Binding(t.Key().Binding())
	if err := checkOwner(old, t); err != nil {
		return false, err
	}
	binding := newBinding(t)
	if old != nil {
		binding = old.DeepCopy()
	}
	setIdentity(binding, t, old == nil)
	setClaim(binding, claimOf(policy))
	setSettings(binding, policy)
	delete(binding.Annotations, names.TemplateDigestAnnotation)
	if policy.Lazy() {
		setDigest(binding, t)
	}
	if err := d.setPolicy(binding, policy.Spec); err != nil {
		return false, err
	}
	if err := d.setRequirements(ctx, binding, t); err != nil {
		return false, err
	}
	return d.write(ctx, t, binding, old)
}

// refresh updates a binding from its template, but not from a policy: there is none, or it is lazy and has not taken effect.
func (d *Controller) refresh(ctx context.Context, t *cell.Template, old, binding *workv1alpha2.ResourceBinding) error {
	if old.DeletionTimestamp != nil || old.Spec.Resource.UID != t.UID && !awaits(old) {
		return nil
	}
	setIdentity(binding, t, false)
	if err := d.setRequirements(ctx, binding, t); err != nil {
		return err
	}
	if _, err := d.write(ctx, t, binding, old); err != nil {
		return err
	}
	d.bind(t.Key().Binding())
	return nil
}

// write schedules the binding if needed and writes it if it has changed.
func (d *Controller) write(ctx context.Context, t *cell.Template, binding, old *workv1alpha2.ResourceBinding) (bool, error) {
	written, err := d.scheduler.Place(ctx, scheduler.Change{Before: old, After: binding, TemplateVersion: t.Version})
	if err != nil {
		return false, err
	}
	return written != old, nil
}

// checkOwner refuses to touch a binding that is being deleted or belongs to another template.
func checkOwner(old *workv1alpha2.ResourceBinding, t *cell.Template) error {
	switch {
	case old == nil:
		return nil
	case old.DeletionTimestamp != nil:
		return queue.Later{After: time.Second} // the binding of an earlier template of that name is still being removed
	case !belongs(old, t.Key()):
		return fmt.Errorf("binding %s belongs to a %s of %s; rename one of the two templates", old.Name, old.Spec.Resource.Kind, old.Spec.Resource.APIVersion)
	default:
		return nil
	}
}

// awaits reports whether a binding was created elsewhere for a template that had not been seen yet: other bindings
// depend on it.
func awaits(binding *workv1alpha2.ResourceBinding) bool {
	return binding.Spec.Resource.UID == "" && len(binding.Spec.RequiredBy) > 0
}

func newBinding(t *cell.Template) *workv1alpha2.ResourceBinding {
	key := t.Key().Binding()
	return &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
}

// setIdentity links the binding to its template.
func setIdentity(binding *workv1alpha2.ResourceBinding, t *cell.Template, isNew bool) {
	idLabel, finalizer := names.ResourceBindingPermanentIDLabel, names.BindingFinalizer
	if binding.Namespace == "" {
		idLabel, finalizer = names.ClusterResourceBindingPermanentIDLabel, names.ClusterResourceBindingFinalizer
	}
	if binding.Labels == nil {
		binding.Labels = map[string]string{}
	}
	if binding.Labels[idLabel] == "" {
		binding.Labels[idLabel] = uuid.NewString()
	}
	if !slices.Contains(binding.Finalizers, finalizer) {
		binding.Finalizers = append(binding.Finalizers, finalizer)
	}
	apiVersion, kind := t.Kind.ToAPIVersionAndKind()
	binding.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: kind, Name: t.Name, UID: t.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}
	version := binding.Spec.Resource.ResourceVersion
	if isNew || version == "" {
		version = t.Version
	}
	binding.Spec.Resource = workv1alpha2.ObjectReference{
		APIVersion: apiVersion, Kind: kind, Namespace: t.Namespace, Name: t.Name, UID: t.UID, ResourceVersion: version,
	}
}

// setDigest records the template as its user has made it.
func setDigest(binding *workv1alpha2.ResourceBinding, t *cell.Template) {
	metav1.SetMetaDataAnnotation(&binding.ObjectMeta, names.TemplateDigestAnnotation, digestOf(t))
}

func digestOf(t *cell.Template) string { return strconv.FormatUint(t.Digest, 16) }

// setClaim copies the claim of the template.
func setClaim(binding *workv1alpha2.ResourceBinding, claim cell.Claim) {
	if binding.Labels == nil {
		binding.Labels = map[string]string{}
	}
	if binding.Annotations == nil {
		binding.Annotations = map[string]string{}
	}
	set := func(entries map[string]string, wanted map[string]string) {
		for key, value := range wanted {
			if value == "" {
				delete(entries, key)
			} else {
				entries[key] = value
			}
		}
	}
	set(binding.Labels, claim.Labels())
	set(binding.Annotations, claim.Annotations())
	switch {
	case claim.ServiceID != "":
		binding.Labels[names.BindingManagedByLabel] = names.ClaimedByMultiClusterService
	case binding.Labels[names.BindingManagedByLabel] == names.ClaimedByMultiClusterService:
		delete(binding.Labels, names.BindingManagedByLabel)
	}
}

// setSettings copies the annotations of a policy that bindings take over.
func setSettings(binding *workv1alpha2.ResourceBinding, policy *policies.Policy) {
	for _, key := range policies.Settings {
		if value := policy.Settings[key]; value != "" {
			binding.Annotations[key] = value
		} else {
			delete(binding.Annotations, key)
		}
	}
}

// setPolicy copies the fields of the policy.
func (d *Controller) setPolicy(binding *workv1alpha2.ResourceBinding, policy *policyv1alpha1.PropagationSpec) error {
	spec := &binding.Spec
	spec.PropagateDeps = policy.PropagateDeps || policy.Association
	if spec.PropagateDeps && !slices.Contains(binding.Finalizers, names.BindingDependenciesFinalizer) {
		binding.Finalizers = append(binding.Finalizers, names.BindingDependenciesFinalizer)
	}
	spec.SchedulerName = policy.SchedulerName
	spec.Placement = policy.Placement.DeepCopy()
	spec.Failover = policy.Failover.DeepCopy()
	spec.ConflictResolution = policy.ConflictResolution
	spec.PreserveResourcesOnDeletion = policy.PreserveResourcesOnDeletion
	spec.Suspension = suspensionOf(policy.Suspension, spec.Suspension)
	spec.SchedulePriority = nil
	if wanted := policy.SchedulePriority; wanted != nil {
		class := d.cell.PriorityClasses.Get(cell.Key{Name: wanted.PriorityClassName})
		if class == nil {
			return fmt.Errorf("schedulePriority names the PriorityClass %q, which does not exist; create it or name another", wanted.PriorityClassName)
		}
		spec.SchedulePriority = &workv1alpha2.SchedulePriority{Priority: class.Value}
	}
	return nil
}

// suspensionOf takes dispatching from the policy. Scheduling is suspended on the binding itself, by others.
func suspensionOf(policy *policyv1alpha1.Suspension, now *workv1alpha2.Suspension) *workv1alpha2.Suspension {
	var suspension workv1alpha2.Suspension
	if policy != nil {
		suspension.Suspension = *policy.DeepCopy()
	}
	if now != nil {
		suspension.Scheduling = now.Scheduling
	}
	if apiequality.Semantic.DeepEqual(suspension, workv1alpha2.Suspension{}) {
		return nil
	}
	return &suspension
}

// setRequirements copies what the template asks for.
func (d *Controller) setRequirements(ctx context.Context, binding *workv1alpha2.ResourceBinding, t *cell.Template) error {
	obj, err := t.Object()
	if err != nil {
		return err
	}
	spec := &binding.Spec
	before := spec.DeepCopy()
	if spec.Replicas, spec.ReplicaRequirements, err = d.interpreter.Replicas(ctx, obj); err != nil {
		d.recorder.Failed(events.OfTemplate(t), "replicas", names.EventGetReplicasFailed, err.Error())
		return err
	}
	d.recorder.Also(events.OfTemplate(t), "replicas", names.EventGetReplicasSucceed, fmt.Sprintf("it asks for %d replicas", spec.Replicas),
		spec.Replicas != before.Replicas || !apiequality.Semantic.DeepEqual(spec.ReplicaRequirements, before.ReplicaRequirements))
	components, err := d.interpreter.Components(ctx, obj)
	if err != nil {
		d.recorder.Failed(events.OfTemplate(t), "components", names.EventGetComponentsFailed, err.Error())
		return err
	}
	spec.Components = scheduler.Several(spec.Replicas, components)
	d.recorder.Also(events.OfTemplate(t), "components", names.EventGetComponentsSucceed, fmt.Sprintf("it has %d components", len(spec.Components)),
		!apiequality.Semantic.DeepEqual(spec.Components, before.Components))
	spec.WorkloadAffinityGroups = groupsOf(spec.Placement, t.Labels)
	return nil
}

// groupsOf returns the groups of a template: the values of the labels that its placement names. A template without the
// label is in no group.
func groupsOf(placement *policyv1alpha1.Placement, labels map[string]string) *workv1alpha2.WorkloadAffinityGroups {
	if placement == nil || placement.WorkloadAffinity == nil {
		return nil
	}
	group := func(key string) string {
		if value, labelled := labels[key]; labelled && key != "" {
			return key + "=" + value
		}
		return ""
	}
	var groups workv1alpha2.WorkloadAffinityGroups
	if term := placement.WorkloadAffinity.Affinity; term != nil {
		groups.AffinityGroup = group(term.GroupByLabelKey)
	}
	if term := placement.WorkloadAffinity.AntiAffinity; term != nil {
		groups.AntiAffinityGroup = group(term.GroupByLabelKey)
	}
	if groups == (workv1alpha2.WorkloadAffinityGroups{}) {
		return nil
	}
	return &groups
}
