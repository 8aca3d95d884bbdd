package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/adopt"
	"github.com/cellplane/cellplane/internal/entry"
	"github.com/cellplane/cellplane/internal/karmada"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/override"
	"github.com/cellplane/cellplane/internal/schedule"
)

// Who dispatches a workload.
const (
	dispatchedByKarmada = "Karmada"
	dispatchedByNobody  = "nobody"
	dispatchedByUs      = "the federation"
)

// move is a workload on its way from Karmada to the federation.
type move struct {
	*karmada.Workload
	key       adopt.Key
	resource  schema.GroupVersionResource
	state     string
	obstacles []string
	// wanted is the template to create, and template the one that the federation has.
	wanted, template *unstructured.Unstructured
	// missing are the policies to create, overrides first.
	missing  []client.Object
	live     []adopt.Object
	rendered map[string]*unstructured.Unstructured
}

func (m *move) refuse(format string, args ...any) {
	m.obstacles = append(m.obstacles, fmt.Sprintf(format, args...))
}

func keyOf(w *karmada.Workload) adopt.Key { return adopt.KeyOf(w.Template) }

// describePlaced describes a schedule result.
func describePlaced(targets []workv1alpha2.TargetCluster) string {
	parts := make([]string, len(targets))
	for i := range targets {
		if parts[i] = targets[i].Name; targets[i].Replicas > 0 {
			parts[i] = fmt.Sprintf("%s:%d", targets[i].Name, targets[i].Replicas)
		}
	}
	return strings.Join(parts, " ")
}

// examine finds out how far a workload is and what stands in the way. It writes nothing.
func (t *takeover) examine(ctx context.Context, w *karmada.Workload) (*move, error) {
	m := &move{Workload: w, key: keyOf(w), state: dispatchedByKarmada}
	var err error
	if m.resource, err = t.resource(w.GroupVersionKind()); err != nil {
		m.refuse("the federation does not have the kind %s; create its CustomResourceDefinition there first", w.Template.GetKind())
		return m, nil
	}
	if m.wanted, err = t.templateFrom(w.Template); err != nil {
		return nil, err
	}
	m.template, err = t.templates.Resource(m.resource).Namespace(m.key.Namespace).Get(ctx, m.key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		m.template, err = nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s in the federation: %w", w, err)
	}
	if err := t.readMembers(ctx, m); err != nil {
		return nil, err
	}
	if m.state == dispatchedByUs {
		return m, nil
	}
	if m.examinePlacement(); len(m.obstacles) > 0 {
		return m, nil
	}
	if m.template != nil && m.template.GetAnnotations()[names.HandedOverAnnotation] != string(w.Template.GetUID()) {
		m.refuse("the federation has a %s of this name already; delete or rename it", m.key.Kind)
	}
	if err := t.comparePolicies(ctx, m); err != nil || len(m.obstacles) > 0 {
		return m, err
	}
	t.render(ctx, m)
	return m, nil
}

// templateFrom returns what a user has decided in a template of Karmada.
func (t *takeover) templateFrom(from *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	pruned, err := t.interpreters.Prune(from)
	if err != nil {
		return nil, err
	}
	template := pruned.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "ownerReferences", "finalizers"} {
		unstructured.RemoveNestedField(template.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(template.Object, "status")
	template.SetLabels(withoutClaims(template.GetLabels()))
	annotations := withoutClaims(template.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	// The federation writes nothing before the engine's result was rehearsed, and then it takes over what Karmada has marked.
	annotations[names.HandedOverAnnotation] = string(from.GetUID())
	annotations[names.SuspendDispatchingAnnotation] = "true"
	annotations[names.ConflictResolutionAnnotation] = "overwrite"
	template.SetAnnotations(annotations)
	return template, nil
}

// withoutClaims returns labels or annotations without those by which Karmada's policies claim a template.
func withoutClaims(entries map[string]string) map[string]string {
	kept := maps.Clone(entries)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return domain == "propagationpolicy.karmada.io" || domain == "clusterpropagationpolicy.karmada.io" || key == names.ManagedLabel || key == names.HandedOverAnnotation
	})
	return kept
}

// examinePlacement checks that Karmada is not moving the workload just now.
func (m *move) examinePlacement() {
	spec := &m.Binding.Spec
	switch {
	case m.Policy == nil && len(spec.RequiredBy) == 0:
		m.refuse("no policy of Karmada places it")
	case m.Template.GetDeletionTimestamp() != nil:
		m.refuse("it is being deleted in Karmada")
	case len(m.Targets()) == 0:
		m.refuse("karmada has not scheduled it")
	case len(spec.GracefulEvictionTasks) > 0:
		m.refuse("karmada is moving it out of cluster %s; wait until that is done", spec.GracefulEvictionTasks[0].FromCluster)
	case spec.Placement != nil && schedule.Divided(spec.Placement) && spec.Replicas > 0 && sum(spec.Clusters) != spec.Replicas:
		m.refuse("karmada has scheduled %d of its %d replicas", sum(spec.Clusters), spec.Replicas)
	}
}

func sum(targets []workv1alpha2.TargetCluster) (total int32) {
	for i := range targets {
		total += targets[i].Replicas
	}
	return total
}

// readMembers reads the workload in its clusters. Each copy has to be Karmada's, or the federation's already.
func (t *takeover) readMembers(ctx context.Context, m *move) error {
	taken := 0
	for _, target := range m.Targets() {
		if t.members[target.Name] == nil {
			m.refuse("the federation has no cluster %s; add it under this name with `cellplane join`", target.Name)
			continue
		}
		live, err := t.members[target.Name].Resource(m.resource).Namespace(m.key.Namespace).Get(ctx, m.key.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			m.refuse("it does not exist in cluster %s", target.Name)
			continue
		}
		if err != nil {
			return fmt.Errorf("reading %s in cluster %s: %w", m.Workload, target.Name, err)
		}
		m.live = append(m.live, adopt.Object{Cluster: target.Name, Object: live})
		work, err := t.karmada.Work(ctx, m.Workload, target.Name)
		if err != nil {
			return err
		}
		halted, err := t.halted(ctx, m.Workload, work)
		if err != nil {
			return err
		}
		_, open := entry.Of(live.GetAnnotations())
		switch {
		case adopt.IsCopy(live, m.template):
			taken++
		case live.GetDeletionTimestamp() != nil:
			m.refuse("it is being deleted in cluster %s", target.Name)
		case open:
			m.refuse("it is out of the federation's hands in cluster %s, by the annotation %s; remove that first", target.Name, names.EntryAnnotation)
		case work == nil:
			m.refuse("karmada has no Work of it for cluster %s", target.Name)
		case live.GetLabels()[names.CellLabel] != "" || live.GetLabels()[names.WorkPermanentIDLabel] != work.Labels[names.WorkPermanentIDLabel]:
			m.refuse("the object in cluster %s is not the one of this Karmada, according to its labels", target.Name)
		case halted:
			m.refuse("karmada does not dispatch it to cluster %s just now, and not because of a hand-over; resume that first", target.Name)
		}
	}
	dispatching, err := t.karmada.Dispatching(ctx, m.Workload)
	if err != nil {
		return err
	}
	switch {
	case dispatching == "" && taken > 0 && taken == len(m.Targets()) && m.template != nil && m.template.GetAnnotations()[names.SuspendDispatchingAnnotation] == "":
		m.state = dispatchedByUs
	case dispatching == "":
		m.state = dispatchedByNobody
	case taken > 0:
		m.refuse("KARMADA DISPATCHES IT AGAIN to cluster %s, beside the federation; repeat the hand-over with --suspend-others, or switch Karmada off", dispatching)
	}
	return nil
}

// halted reports whether Karmada does not dispatch a Work for a reason of its own.
func (t *takeover) halted(ctx context.Context, w *karmada.Workload, work *workv1alpha1.Work) (bool, error) {
	if work == nil || karmada.Changed(w) || !meta.IsStatusConditionFalse(work.Status.Conditions, names.WorkDispatching) {
		return false, nil
	}
	// Another workload of its policy may have been suspended since it was read.
	err := t.karmada.Refresh(ctx, w)
	return !karmada.Changed(w), err
}

// comparePolicies finds out which policies the federation lacks. Those that it has must be the same.
func (t *takeover) comparePolicies(ctx context.Context, m *move) error {
	policies := slices.Clone(m.Overrides)
	if m.Policy != nil {
		original, err := karmada.Original(m.Policy)
		if err != nil {
			return err
		}
		policies = append(policies, original)
	}
	for _, policy := range policies {
		existing := reflect.New(reflect.TypeOf(policy).Elem()).Interface().(client.Object)
		err := t.client.Get(ctx, client.ObjectKeyFromObject(policy), existing)
		kind := policyKind(policy)
		switch {
		case apierrors.IsNotFound(err) && policy.GetNamespace() == "" && !t.flags.clusterPolicies:
			m.refuse("%s %s of Karmada applies to it and is not in the federation; create it there first, or use --cluster-policies", kind, policy.GetName())
		case apierrors.IsNotFound(err):
			m.missing = append(m.missing, copyOf(policy))
		case err != nil:
			return fmt.Errorf("reading %s %s in the federation: %w", kind, policy.GetName(), err)
		default:
			same, err := t.sameInFederation(ctx, policy, existing)
			if err != nil {
				return err
			}
			if !same {
				m.refuse("the federation has another %s %s; delete it, or make it equal to Karmada's", kind, policy.GetName())
			}
		}
	}
	return nil
}

// sameInFederation reports whether the federation has a policy as it would store that of Karmada: both have defaults of their own.
func (t *takeover) sameInFederation(ctx context.Context, policy, existing client.Object) (bool, error) {
	var stored client.Object
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		stored = copyOf(policy)
		stored.SetUID(existing.GetUID())
		stored.SetResourceVersion(existing.GetResourceVersion())
		err := t.client.Update(ctx, stored, client.DryRunAll)
		if apierrors.IsConflict(err) { // the federation labels a policy that it has just got
			return errors.Join(err, t.client.Get(ctx, client.ObjectKeyFromObject(existing), existing))
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("comparing %s %s with that of the federation: %w", policyKind(policy), policy.GetName(), err)
	}
	return apiequality.Semantic.DeepEqual(specOf(stored), specOf(existing)), nil
}

func policyKind(policy client.Object) string {
	return strings.TrimPrefix(fmt.Sprintf("%T", policy), "*v1alpha1.")
}

func specOf(policy client.Object) any {
	switch policy := policy.(type) {
	case *policyv1alpha1.PropagationPolicy:
		return policy.Spec
	case *policyv1alpha1.ClusterPropagationPolicy:
		return policy.Spec
	case *policyv1alpha1.OverridePolicy:
		return policy.Spec
	case *policyv1alpha1.ClusterOverridePolicy:
		return policy.Spec
	default:
		return nil
	}
}

// copyOf returns a policy to create in the federation. Labels by which Karmada identifies it stay there.
func copyOf(policy client.Object) client.Object {
	created := policy.DeepCopyObject().(client.Object)
	created.SetUID("")
	created.SetResourceVersion("")
	created.SetGeneration(0)
	created.SetCreationTimestamp(metav1.Time{})
	created.SetManagedFields(nil)
	created.SetOwnerReferences(nil)
	created.SetFinalizers(nil)
	created.SetLabels(withoutClaims(policy.GetLabels()))
	created.SetAnnotations(withoutClaims(policy.GetAnnotations()))
	return created
}

// render renders the template as the federation would, in the clusters that Karmada has chosen.
func (t *takeover) render(ctx context.Context, m *move) {
	template := m.wanted
	if m.template != nil && m.template.GetAnnotations()[names.SuspendDispatchingAnnotation] == "" {
		template = m.template // the engine is writing it
	}
	spec := m.Binding.Spec.DeepCopy()
	spec.Clusters = m.Targets()
	rendered, err := t.planner.RenderPlaced(ctx, template, spec, t.overridesWith(m))
	if err != nil {
		m.refuse("the federation cannot reproduce it: %v", err)
		return
	}
	m.rendered = map[string]*unstructured.Unstructured{}
	for cluster, manifest := range rendered {
		item := &adopt.Item{Key: m.key}
		m.rendered[cluster] = merge.Stamp(manifest, marksOf(item, cluster))
	}
}

// overridesWith returns the overrides of the federation, with those that are to be created for a workload.
func (t *takeover) overridesWith(m *move) *override.Set {
	var all []*override.Policy
	for _, policy := range t.planner.Overrides {
		all = append(all, override.Compile(policy))
	}
	for _, policy := range t.planner.ClusterOverrides {
		all = append(all, override.CompileCluster(policy))
	}
	for _, policy := range m.missing {
		switch policy := policy.(type) {
		case *policyv1alpha1.OverridePolicy:
			all = append(all, override.Compile(policy))
		case *policyv1alpha1.ClusterOverridePolicy:
			all = append(all, override.CompileCluster(policy))
		}
	}
	return override.NewSet(all...)
}

// rehearseMove writes manifests to their clusters as a dry run.
func (t *takeover) rehearseMove(ctx context.Context, m *move, manifests map[string]*unstructured.Unstructured) []rehearsal {
	var rehearsals []rehearsal
	for _, object := range m.live {
		changes, err := t.rehearseIn(ctx, object, manifests[object.Cluster])
		rehearsals = append(rehearsals, rehearsal{object.Cluster, changes, err})
	}
	return rehearsals
}
