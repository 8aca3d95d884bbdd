package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/adopt"
	"github.com/cellplane/cellplane/internal/difference"
	"github.com/cellplane/cellplane/internal/karmada"
	"github.com/cellplane/cellplane/internal/release"
	"github.com/cellplane/cellplane/internal/schedule"
)

// take takes one workload over. It returns what there is to say about it, "" for nothing.
func (t *takeover) take(ctx context.Context, w *karmada.Workload) (string, error) {
	// 1. Rehearse before anything is changed.
	m, err := t.rehearsed(ctx, w)
	switch {
	case err != nil:
		return "", err
	case m.state == dispatchedByUs:
		return "taken over already", t.finish(ctx, m)
	}
	if others := t.others(w); len(others) > 0 && !t.flags.suspendOthers {
		return "", fmt.Errorf("policy %s of Karmada also places %s, whose changes would not be dispatched meanwhile; take that over, too, or use --suspend-others", w.Policy.GetName(), others[0])
	}

	// 2. Suspend Karmada's dispatching. From here on nobody dispatches the workload.
	if err := t.karmada.Suspend(ctx, w); err != nil {
		return "", err
	}

	// 3. Let the federation dispatch it.
	if err := t.continueIn(ctx, w); err != nil {
		return "", fmt.Errorf("%w; Karmada's dispatching is suspended: repeat this, or `adopt karmada undo`", err)
	}
	return "", nil
}

// rehearsed examines a workload, and refuses one that cannot be taken over or would change.
func (t *takeover) rehearsed(ctx context.Context, w *karmada.Workload) (*move, error) {
	m, err := t.examine(ctx, w)
	switch {
	case err != nil:
		return nil, err
	case m.state == dispatchedByUs:
		return m, nil
	case len(m.obstacles) > 0:
		return nil, errors.New(m.obstacles[0])
	}
	return m, t.mustStaySame(ctx, m, m.rendered)
}

// continueIn continues a workload, which Karmada does not dispatch any more, in the federation.
func (t *takeover) continueIn(ctx context.Context, w *karmada.Workload) error {
	// 1. Read it again: somebody may have changed it in Karmada before it was suspended.
	if err := t.karmada.Refresh(ctx, w); err != nil {
		return err
	}
	m, err := t.rehearsed(ctx, w)
	if err != nil {
		return err
	}

	// 2. Create it in the federation, where its template suspends dispatching, with Karmada's schedule result.
	if err := t.createAll(ctx, m); err != nil {
		return err
	}
	if err := t.untilPlaced(ctx, m); err != nil {
		return err
	}

	// 3. Let the engine write, if Karmada still does not.
	dispatching, err := t.karmada.Dispatching(ctx, w)
	if err != nil {
		return err
	}
	if dispatching != "" {
		return fmt.Errorf("karmada dispatches to cluster %s again; somebody has changed its policy or binding", dispatching)
	}
	if err := t.patchTemplate(ctx, m, map[string]any{names.SuspendDispatchingAnnotation: nil}); err != nil {
		return err
	}
	item, group := m.group()
	if err := t.untilMarked(ctx, group, item); err != nil {
		return err
	}
	return t.finish(ctx, m)
}

// group returns the workload as the group of an adoption.
func (m *move) group() (*adopt.Item, adopt.Group) {
	return &adopt.Item{Key: m.key}, adopt.Group{Key: m.key, Objects: m.live, Template: m.template}
}

// others returns the bindings that would be suspended with a workload, because its policy places them, and that are not chosen. A policy that is
// suspended already suspends no more.
func (t *takeover) others(w *karmada.Workload) []string {
	if karmada.PolicyChanged(w) {
		return nil
	}
	var others []string
	for _, key := range w.Peers {
		if !slices.ContainsFunc(t.chosen, func(c *karmada.Workload) bool { return client.ObjectKeyFromObject(c.Binding) == key }) {
			others = append(others, strings.TrimPrefix(key.String(), "/"))
		}
	}
	return others
}

// mustStaySame returns an error that names the first field that manifests would change.
func (t *takeover) mustStaySame(ctx context.Context, m *move, manifests map[string]*unstructured.Unstructured) error {
	for _, r := range t.rehearseMove(ctx, m, manifests) {
		if r.err != nil {
			return fmt.Errorf("it cannot be rehearsed in cluster %s: %w", r.cluster, r.err)
		}
		if len(r.changes) > 0 {
			return fmt.Errorf("cluster %s would change: %s", r.cluster, r.changes[0].Describe(m.key.Kind))
		}
	}
	return nil
}

// createAll creates what the federation lacks: the namespace, overrides, the policy, and the template.
func (t *takeover) createAll(ctx context.Context, m *move) error {
	if err := t.createNamespace(ctx); err != nil {
		return err
	}
	for _, policy := range m.missing {
		if err := t.client.Create(ctx, policy); err != nil && !apierrors.IsAlreadyExists(err) { // another workload may have brought it
			return fmt.Errorf("creating %s %s: %w", policyKind(policy), policy.GetName(), err)
		}
	}
	if m.template != nil {
		return nil
	}
	var err error
	m.template, err = t.createTemplate(ctx, &adopt.Item{Key: m.key, Template: m.wanted})
	return err
}

// untilPlaced waits until the engine has rendered the template for the clusters that Karmada has chosen, such that nothing changes there.
func (t *takeover) untilPlaced(ctx context.Context, m *move) error {
	last := errors.New("the engine has not rendered it")
	err := wait.PollUntilContextCancel(ctx, adoptionPoll, true, func(ctx context.Context) (bool, error) {
		binding := &workv1alpha2.ResourceBinding{}
		err := t.client.Get(ctx, client.ObjectKey{Namespace: m.key.Namespace, Name: names.BindingName(m.key.Kind, m.key.Name)}, binding)
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
		placed := &karmada.Workload{Binding: binding}
		if got, want := describePlaced(placed.Targets()), describePlaced(m.Targets()); got != want {
			last = fmt.Errorf("the scheduler places it as %q instead of %q", got, want)
			return false, t.setClusters(ctx, m, binding)
		}
		manifests := map[string]*unstructured.Unstructured{}
		item, _ := m.group()
		for _, object := range m.live {
			manifest, err := t.rendered(ctx, item, object.Cluster)
			if err != nil {
				return false, err
			}
			if manifest == nil {
				last = fmt.Errorf("the engine has not rendered it for cluster %s", object.Cluster)
				return false, nil
			}
			manifests[object.Cluster] = manifest
		}
		last = t.mustStaySame(ctx, m, manifests)
		return last == nil, nil
	})
	if wait.Interrupted(err) {
		return last
	}
	return err
}

// setClusters gives a binding with divided replicas the schedule result of Karmada. The scheduler keeps it while its sum is right. Other bindings
// are where their policy says.
func (t *takeover) setClusters(ctx context.Context, m *move, binding *workv1alpha2.ResourceBinding) error {
	if binding.Spec.Placement == nil || !schedule.Divided(binding.Spec.Placement) || sum(m.Binding.Spec.Clusters) != binding.Spec.Replicas {
		return nil
	}
	before := binding.DeepCopy()
	binding.Spec.Clusters = m.Binding.Spec.Clusters
	err := t.client.Patch(ctx, binding, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("giving binding %s the clusters that Karmada has chosen: %w", binding.Name, err)
	}
	return nil
}

// finish gives the template its own conflict resolution again.
func (t *takeover) finish(ctx context.Context, m *move) error {
	var want any
	if value, set := m.Template.GetAnnotations()[names.ConflictResolutionAnnotation]; set {
		want = value
	}
	if value, set := m.template.GetAnnotations()[names.ConflictResolutionAnnotation]; set && any(value) != want {
		return t.patchTemplate(ctx, m, map[string]any{names.ConflictResolutionAnnotation: want})
	}
	return nil
}

// patchTemplate changes annotations of the template in the federation.
func (t *takeover) patchTemplate(ctx context.Context, m *move, annotations map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return err
	}
	m.template, err = t.templates.Resource(m.resource).Namespace(m.key.Namespace).Patch(ctx, m.key.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("changing the template: %w", err)
	}
	return nil
}

// karmadaManager is the field manager of Karmada in members.
const karmadaManager = "karmada-controller-manager"

// giveBack gives one workload back to Karmada. It returns what there is to say about it, "" for nothing.
func (t *takeover) giveBack(ctx context.Context, w *karmada.Workload, revert bool) (string, error) {
	m := &move{Workload: w, key: keyOf(w)}
	var err error
	if m.resource, err = t.resource(w.GroupVersionKind()); err != nil {
		return "", err
	}
	m.template, err = t.templates.Resource(m.resource).Namespace(m.key.Namespace).Get(ctx, m.key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		m.template = nil
	case err != nil:
		return "", fmt.Errorf("reading the template in the federation: %w", err)
	case m.template.GetAnnotations()[names.HandedOverAnnotation] != string(w.Template.GetUID()):
		return "", errors.New("the template in the federation was not taken over from this Karmada")
	}

	// 1. Check what Karmada would make of it.
	if karmada.HandedOver(w) && !revert {
		if err := t.karmadaMustNotChange(ctx, m); err != nil {
			return "", err
		}
	}

	// 2. Let the federation release it. From here on nobody dispatches it.
	if m.template != nil {
		f := &release.Federation{Client: t.client, Templates: t.templates, Members: t.members, Interpreter: t.interpreters, Compare: t.firstChange}
		if err := f.Everywhere(ctx, m.resource, m.template); err != nil {
			return "", err
		}
	}

	// 3. Mark it as Karmada's again, and let Karmada go on.
	for _, target := range w.Targets() {
		if err := t.markForKarmada(ctx, m, target.Name); err != nil {
			return "", err
		}
	}
	waiting, err := t.karmada.Resume(ctx, w)
	if err != nil || !waiting {
		return "", err
	}
	return fmt.Sprintf("given back; Karmada dispatches it when all workloads of policy %s are given back", w.Policy.GetName()), nil
}

// karmadaMustNotChange rehearses what Karmada would write once it goes on.
func (t *takeover) karmadaMustNotChange(ctx context.Context, m *move) error {
	if m.template != nil && m.template.GetAnnotations()[names.SuspendDispatchingAnnotation] == "" {
		binding := &workv1alpha2.ResourceBinding{}
		err := t.client.Get(ctx, client.ObjectKey{Namespace: m.key.Namespace, Name: names.BindingName(m.key.Kind, m.key.Name)}, binding)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading its binding in the federation: %w", err)
		}
		for _, target := range (&karmada.Workload{Binding: binding}).Targets() {
			if !slices.ContainsFunc(m.Targets(), func(t workv1alpha2.TargetCluster) bool { return t.Name == target.Name }) {
				return fmt.Errorf("karmada does not place it in cluster %s, where it would stay unmanaged; place it there in Karmada, too, or use --revert", target.Name)
			}
		}
	}
	for _, target := range m.Targets() {
		live, manifest, err := t.inBoth(ctx, m, target.Name)
		if err != nil {
			return err
		}
		if live == nil {
			return fmt.Errorf("karmada would create it in cluster %s; change that in Karmada, or use --revert", target.Name)
		}
		put, err := t.interpreters.Retain(ctx, manifest, live)
		if err != nil {
			return err
		}
		// Karmada replaces the object, and keeps labels and annotations that only the member has.
		put = put.DeepCopy()
		put.SetResourceVersion(live.GetResourceVersion())
		put.SetFinalizers(live.GetFinalizers())
		put.SetOwnerReferences(live.GetOwnerReferences())
		put.SetLabels(merged(live.GetLabels(), put.GetLabels()))
		put.SetAnnotations(merged(live.GetAnnotations(), put.GetAnnotations()))
		updated, err := t.members[target.Name].Resource(m.resource).Namespace(m.key.Namespace).
			Update(ctx, put, metav1.UpdateOptions{FieldManager: karmadaManager, DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return fmt.Errorf("it cannot be rehearsed in cluster %s: %w", target.Name, err)
		}
		if changes := difference.Between(live, updated); len(changes) > 0 {
			return fmt.Errorf("karmada would change it in cluster %s: %s; make the change in Karmada's template or overrides, too, or use --revert", target.Name, changes[0].Describe(m.key.Kind))
		}
	}
	return nil
}

func merged(live, own map[string]string) map[string]string {
	all := map[string]string{}
	for _, entries := range []map[string]string{live, own} {
		for key, value := range entries {
			all[key] = value
		}
	}
	return all
}

// inBoth returns a workload as it is in a cluster, nil if it is not there, and as Karmada's Work has it.
func (t *takeover) inBoth(ctx context.Context, m *move, cluster string) (live, manifest *unstructured.Unstructured, err error) {
	work, err := t.karmada.Work(ctx, m.Workload, cluster)
	if err != nil {
		return nil, nil, err
	}
	if work == nil {
		return nil, nil, fmt.Errorf("karmada has no Work of it for cluster %s", cluster)
	}
	if manifest, err = karmada.Manifest(work); err != nil {
		return nil, nil, err
	}
	if t.members[cluster] == nil {
		return nil, nil, fmt.Errorf("the federation has no cluster %s", cluster)
	}
	live, err = t.members[cluster].Resource(m.resource).Namespace(m.key.Namespace).Get(ctx, m.key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, manifest, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading it in cluster %s: %w", cluster, err)
	}
	return live, manifest, nil
}

// markForKarmada sets Karmada's labels and annotations in a cluster, without which Karmada would not touch the object.
func (t *takeover) markForKarmada(ctx context.Context, m *move, cluster string) error {
	live, manifest, err := t.inBoth(ctx, m, cluster)
	if err != nil || live == nil {
		return err
	}
	work, err := t.rendered(ctx, &adopt.Item{Key: m.key}, cluster)
	if err != nil {
		return err
	}
	if work != nil || live.GetLabels()[names.CellLabel] != "" {
		return fmt.Errorf("the engine has not let it go in cluster %s yet; repeat this", cluster)
	}
	labels, annotations := karmadaMarks(manifest.GetLabels(), live.GetLabels()), karmadaMarks(manifest.GetAnnotations(), live.GetAnnotations())
	if len(labels)+len(annotations) == 0 {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": live.GetResourceVersion(), "labels": labels, "annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = t.members[cluster].Resource(m.resource).Namespace(m.key.Namespace).Patch(ctx, m.key.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: karmadaManager})
	if err != nil {
		return fmt.Errorf("marking it in cluster %s: %w", cluster, err)
	}
	return nil
}

// karmadaMarks returns the entries of a manifest that identify it to Karmada and that an object lacks.
func karmadaMarks(manifest, live map[string]string) map[string]string {
	marks := map[string]string{}
	for key, value := range manifest {
		if names.IsMark(key) && live[key] != value {
			marks[key] = value
		}
	}
	return marks
}
