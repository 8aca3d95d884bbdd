package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/adopt"
	"github.com/cellplane/cellplane/internal/entry"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/override"
	"github.com/cellplane/cellplane/internal/render"
	"github.com/cellplane/cellplane/internal/rights"
	"github.com/cellplane/cellplane/internal/schedule"
)

// keepEntry makes the federation want what an open object is like, then closes it. If the object or what the federation wants changes meanwhile, it starts
// anew. Nothing is written to the object before the engine has rendered it without a difference.
func keepEntry(ctx context.Context, out io.Writer, flags *entryFlags, o *memberObject, into string, timeout time.Duration) error {
	namespace := cmp.Or(o.live.GetNamespace(), metav1.NamespaceDefault)
	a, err := openAdoption(ctx, &adoptFlags{gatewayFlags: flags.gatewayFlags, namespace: namespace, clusters: []string{flags.cluster}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	item := &adopt.Item{Key: adopt.KeyOf(o.live)}
	lift := a.liftIntoOverride
	override, _ := newEntryOverride(item.Key, flags.cluster)
	where := override.GetObjectKind().GroupVersionKind().Kind + " " + override.GetName()
	if into == intoTemplate {
		lift, where = a.liftIntoTemplate, "the template"
	}
	last := fmt.Errorf("the federation has no Work for %s", o)
	written := "" // the manifest for which it was written
	err = wait.PollUntilContextCancel(ctx, adoptionPoll, true, func(ctx context.Context) (bool, error) {
		if err := o.read(ctx, o.live.GetName()); err != nil {
			return false, err
		}
		manifest, err := a.rendered(ctx, item, flags.cluster)
		if err != nil || manifest == nil {
			return false, err
		}
		goal, err := a.goal(ctx, item, flags.cluster, manifest)
		if err != nil {
			return false, err
		}
		fields, write, err := lift(ctx, item.Key, flags.cluster, goal, o.live)
		if err == nil && len(fields) == 0 {
			if fields, err = a.pending(ctx, manifest, o.live); len(fields) > 0 {
				last = notRendered(where, fields)
				return false, nil
			}
		}
		switch {
		case err != nil:
			return false, err
		case len(fields) == 0:
			err := o.annotate(ctx, entry.Closed())
			if apierrors.IsConflict(err) {
				return false, nil
			}
			return err == nil, err
		}
		last = notRendered(where, fields)
		if version := goal.GetAnnotations()[merge.FingerprintAnnotation] + " " + fmt.Sprint(fields); version != written {
			if err := write(ctx); apierrors.IsConflict(err) {
				return false, nil
			} else if err != nil {
				return false, err
			}
			written = version
			for _, field := range fields {
				fmt.Fprintf(out, "%s keeps %s.\n", capitalized(where), field)
			}
		}
		return false, nil
	})
	if wait.Interrupted(err) {
		return last
	}
	return err
}

// notRendered says why an entry is not closed.
func notRendered(where string, fields []string) error {
	return fmt.Errorf("the engine has not rendered %s yet, or an override of this cluster is another: %s would still change; the entry stays open", where, fields[0])
}

// goal returns what the federation wants in a cluster in the end. That is what its engine has rendered, unless a rolling update over several clusters has not reached this one: it
// does not before the entry is closed.
func (a *adoption) goal(ctx context.Context, item *adopt.Item, cluster string, rendered *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	key := item.Key
	binding, err := a.binding(ctx, key)
	switch {
	case apierrors.IsNotFound(err): // that of a namespace, which has none
		return rendered, nil
	case err != nil:
		return nil, err
	case leftBy(&binding.Spec, cluster):
		return nil, fmt.Errorf("%s is not placed in cluster %s any more, and will be removed there when the entry is closed; what is to be kept belongs into its template or an override", key, cluster)
	case binding.Annotations[names.RolloutAnnotation] == "":
		return rendered, nil
	}
	resource, err := a.resource(key.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	template, err := a.templates.Resource(resource).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the template: %w", err)
	}
	overrides, err := a.overrides(ctx)
	if err != nil {
		return nil, err
	}
	manifests, err := a.planner.RenderPlaced(ctx, template, &binding.Spec, overrides)
	if err != nil || manifests[cluster] == nil {
		return rendered, err
	}
	goal := merge.Stamp(manifests[cluster], marksOf(item, cluster))
	if command := rendered.GetAnnotations()[names.RolloutCommandAnnotation]; command != "" {
		annotations := goal.GetAnnotations()
		annotations[names.RolloutCommandAnnotation] = command
		goal.SetAnnotations(annotations)
	}
	return goal, nil
}

// binding reads the binding of a template of either scope.
func (a *adoption) binding(ctx context.Context, key adopt.Key) (*workv1alpha2.ResourceBinding, error) {
	binding := &workv1alpha2.ResourceBinding{}
	var read client.Object = binding
	if key.Namespace == "" {
		read = (*workv1alpha2.ClusterResourceBinding)(binding)
	}
	if err := a.client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: names.BindingName(key.Kind, key.Name)}, read); err != nil {
		return nil, fmt.Errorf("reading the binding: %w", err)
	}
	return binding, nil
}

// leftBy reports whether a binding is not placed in a cluster, neither by itself nor because something there needs its object.
func leftBy(spec *workv1alpha2.ResourceBindingSpec, cluster string) bool {
	in := func(targets []workv1alpha2.TargetCluster) bool {
		return slices.ContainsFunc(targets, func(target workv1alpha2.TargetCluster) bool { return target.Name == cluster })
	}
	return !in(spec.Clusters) && !slices.ContainsFunc(spec.RequiredBy, func(by workv1alpha2.BindingSnapshot) bool { return in(by.Clusters) })
}

// overrides reads the overrides of the federation as they are now.
func (a *adoption) overrides(ctx context.Context) (*override.Set, error) {
	var namespaced policyv1alpha1.OverridePolicyList
	var clusterWide policyv1alpha1.ClusterOverridePolicyList
	for _, list := range []client.ObjectList{&namespaced, &clusterWide} {
		if err := a.client.List(ctx, list, client.InNamespace(a.flags.namespace)); err != nil {
			return nil, fmt.Errorf("reading the overrides: %w", err)
		}
	}
	var all []*override.Policy
	for i := range namespaced.Items {
		all = append(all, override.Compile(&namespaced.Items[i]))
	}
	for i := range clusterWide.Items {
		all = append(all, override.CompileCluster(&clusterWide.Items[i]))
	}
	return override.NewSet(all...), nil
}

// pending returns the fields of an object that the federation would change by a manifest.
func (a *adoption) pending(ctx context.Context, manifest, live *unstructured.Unstructured) ([]string, error) {
	merged, err := a.merged(ctx, manifest, live)
	if err != nil {
		return nil, err
	}
	_, fields, err := adopt.Keep(a.interpreters, manifest, merged, live)
	return fields, err
}

// The values of --into.
const (
	intoOverride = "override"
	intoTemplate = "template"
)

func capitalized(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// liftIntoOverride returns the fields in which an object of a member differs, and writes the override that keeps them in its cluster.
func (a *adoption) liftIntoOverride(ctx context.Context, key adopt.Key, cluster string, manifest, live *unstructured.Unstructured) ([]string, func(context.Context) error, error) {
	merged, err := a.merged(ctx, manifest, live)
	if err != nil {
		return nil, nil, err
	}
	if field, granted := rights.Of(live).Changed(rights.Of(merged)); granted {
		return nil, nil, fmt.Errorf("%s is part of what %s grants, and an override must not change that; use --into template", field, key)
	}
	overriders, fields, err := adopt.Keep(a.interpreters, manifest, merged, live)
	return fields, func(ctx context.Context) error { return a.addOverride(ctx, key, cluster, overriders) }, err
}

// liftIntoTemplate returns the fields in which an object of a member differs, and writes them to the template.
func (a *adoption) liftIntoTemplate(ctx context.Context, key adopt.Key, _ string, manifest, live *unstructured.Unstructured) ([]string, func(context.Context) error, error) {
	merged, err := a.merged(ctx, manifest, live)
	if err != nil {
		return nil, nil, err
	}
	resource, err := a.resource(key.GroupVersionKind)
	if err != nil {
		return nil, nil, err
	}
	templates := a.templates.Resource(resource).Namespace(key.Namespace)
	template, err := templates.Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("reading the template: %w", err)
	}
	if err := a.mayLiftReplicas(ctx, key, merged, live); err != nil {
		return nil, nil, err
	}
	patch, fields, err := adopt.KeepInTemplate(a.interpreters, template, manifest, merged, live)
	return fields, func(ctx context.Context) error {
		if _, err := templates.Patch(ctx, key.Name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("changing the template: %w", err)
		}
		return nil
	}, err
}

// mayLiftReplicas refuses to lift the replicas of one cluster into a template whose replicas are divided among several.
func (a *adoption) mayLiftReplicas(ctx context.Context, key adopt.Key, merged, live *unstructured.Unstructured) error {
	has, _, err := a.interpreters.Replicas(ctx, live)
	if err != nil {
		return err
	}
	wants, _, err := a.interpreters.Replicas(ctx, merged)
	if err != nil || has == wants {
		return err
	}
	binding, err := a.binding(ctx, key)
	if err != nil {
		return err
	}
	if placement := binding.Spec.Placement; placement != nil && schedule.Divided(placement) && len(binding.Spec.Clusters) > 1 {
		return fmt.Errorf("the cluster has %d replicas instead of %d, and the template's replicas are divided among %d clusters; use --into override, or scale the object to %d first",
			has, wants, len(binding.Spec.Clusters), wants)
	}
	return nil
}

// merged returns an object of a member with what the federation wants merged into it.
func (a *adoption) merged(ctx context.Context, manifest, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	resource, err := a.resource(manifest.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	merger, err := a.mergers.of(ctx, resource, manifest.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	merged, _, err := render.Merge(ctx, a.interpreters, merger, live, manifest)
	return merged, err
}

// newEntryOverride returns the override with what a cluster keeps, without rules, and its spec.
func newEntryOverride(key adopt.Key, cluster string) (client.Object, *policyv1alpha1.OverrideSpec) {
	apiVersion, kind := key.ToAPIVersionAndKind()
	name := names.EntryOverrideName(key.Kind, key.Name, cluster)
	selectors := []policyv1alpha1.ResourceSelector{{APIVersion: apiVersion, Kind: kind, Namespace: key.Namespace, Name: key.Name}}
	if key.Namespace == "" {
		policy := &policyv1alpha1.ClusterOverridePolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: policyv1alpha1.GroupVersion.String(), Kind: "ClusterOverridePolicy"},
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: policyv1alpha1.OverrideSpec{ResourceSelectors: selectors},
		}
		return policy, &policy.Spec
	}
	policy := &policyv1alpha1.OverridePolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1alpha1.GroupVersion.String(), Kind: "OverridePolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name}, Spec: policyv1alpha1.OverrideSpec{ResourceSelectors: selectors},
	}
	return policy, &policy.Spec
}

// addOverride adds a rule for a cluster to the override with what it keeps. Its rules are applied in their order.
func (a *adoption) addOverride(ctx context.Context, key adopt.Key, cluster string, overriders policyv1alpha1.Overriders) error {
	rule := policyv1alpha1.RuleWithCluster{TargetCluster: &policyv1alpha1.ClusterAffinity{ClusterNames: []string{cluster}}, Overriders: overriders}
	policy, spec := newEntryOverride(key, cluster)
	kind := policy.GetObjectKind().GroupVersionKind().Kind
	spec.OverrideRules = []policyv1alpha1.RuleWithCluster{rule}
	found, err := a.createOrGet(ctx, policy)
	if err != nil || !found {
		return err
	}
	if rules := spec.OverrideRules; len(rules) > 0 && apiequality.Semantic.DeepEqual(rules[len(rules)-1], rule) {
		return nil // by an attempt that did not wait for the engine
	}
	before, _ := policy.DeepCopyObject().(client.Object)
	spec.OverrideRules = append(spec.OverrideRules, rule)
	if err := a.client.Patch(ctx, policy, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("adding to %s %s: %w", kind, policy.GetName(), err)
	}
	return nil
}
