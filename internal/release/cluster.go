package release

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
)

// From releases a template in one of its clusters: the others keep it, with the replicas they have. Only a template with
// its own policy can be released like that. Dispatching is suspended meanwhile, so that no cluster sees a state in
// between.
func (f *Federation) From(ctx context.Context, resource schema.GroupVersionResource, template *unstructured.Unstructured, cluster string) error {
	w, err := f.open(ctx, resource, template)
	if err != nil {
		return err
	}
	policy, err := w.ownPolicy(ctx)
	switch {
	case err != nil:
		return err
	case policy == nil:
		return fmt.Errorf("no policy places it alone; take cluster %s out of the one that places it, with preserveResourcesOnDeletion", cluster)
	}
	releasing := policy.GetAnnotations()[names.ReleaseAnnotation]
	inProgress := releasing == cluster
	chosen := slices.Contains(policy.spec.Placement.ClusterAffinity.ClusterNames, cluster)
	switch {
	case releasing != "" && !inProgress:
		return fmt.Errorf("it is being released from %s; finish that first", releasing)
	case !chosen && !inProgress:
		return nil // it is not there
	case chosen && len(policy.spec.Placement.ClusterAffinity.ClusterNames) == 1:
		return f.Everywhere(ctx, resource, template)
	case !inProgress && policy.spec.Suspension != nil:
		return fmt.Errorf("%s suspends dispatching; lift that first", policy)
	}

	// 1. Suspend dispatching.
	if !inProgress {
		if err := w.change(ctx, policy, "suspended the policy", func(spec *policyv1alpha1.PropagationSpec) {
			policy.mark(cluster)
			spec.Suspension = &policyv1alpha1.Suspension{Dispatching: ptr.To(true)}
		}); err != nil {
			return err
		}
	}

	// 2. Let the copy in the cluster stay, then take the cluster out of the placement. The others get the weights of what they have.
	if chosen {
		if err := w.leave(ctx, policy, cluster); err != nil {
			return err
		}
	}

	// 3. Take the replicas of the cluster out of the template, and its overrides.
	if err := w.setReplicas(ctx, policy); err != nil {
		return err
	}
	if err := w.untilUnmarked(ctx, []string{cluster}); err != nil {
		return err
	}
	for _, name := range w.overrideNames(cluster) {
		if err := w.dropOverrides(ctx, policy, name, cluster); err != nil {
			return err
		}
	}

	// 4. Go on with the others, if nothing would change there.
	if err := w.untilSame(ctx, policy); err != nil {
		return err
	}
	if w.template.GetAnnotations()[names.ReleaseAnnotation] != "" {
		if _, err := w.patchTemplate(ctx, map[string]any{"metadata": map[string]any{"annotations": map[string]any{names.ReleaseAnnotation: nil}}}); err != nil {
			return err
		}
		if err := w.wrote("unmarked the template"); err != nil {
			return err
		}
	}
	return w.change(ctx, policy, "lifted the suspension", func(spec *policyv1alpha1.PropagationSpec) {
		policy.mark("")
		spec.Suspension = nil
	})
}

// mark names the cluster that is being released in the annotation of the policy, or removes that.
func (p *placing) mark(cluster string) {
	annotations := maps.Clone(p.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, names.ReleaseAnnotation)
	if cluster != "" {
		annotations[names.ReleaseAnnotation] = cluster
	}
	p.SetAnnotations(annotations)
}

// change patches the policy, unless somebody else has changed it.
func (w *workload) change(ctx context.Context, policy *placing, what string, change func(*policyv1alpha1.PropagationSpec)) error {
	before, _ := policy.DeepCopyObject().(client.Object)
	change(policy.spec)
	if err := w.Client.Patch(ctx, policy.Object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing %s: %w", policy, err)
	}
	return w.wrote(what)
}

// leave takes a cluster out of the placement.
func (w *workload) leave(ctx context.Context, policy *placing, cluster string) error {
	if err := w.untilWorks(ctx, "", "the engine has not suspended the Work of cluster %s yet", func(work *workv1alpha1.Work) bool {
		return ptr.Deref(work.Spec.SuspendDispatching, false)
	}); err != nil {
		return err
	}
	if err := w.markTemplate(ctx, cluster); err != nil {
		return err
	}
	if err := w.untilPreserved(ctx, cluster); err != nil {
		return err
	}
	if err := w.readBinding(ctx); err != nil {
		return err
	}
	replicas := map[string]int64{}
	if w.binding != nil {
		for _, target := range w.binding.Spec.Clusters {
			replicas[target.Name] = int64(target.Replicas)
		}
	}
	return w.change(ctx, policy, "took the cluster out of the policy", func(spec *policyv1alpha1.PropagationSpec) {
		affinity := spec.Placement.ClusterAffinity
		affinity.ClusterNames = slices.DeleteFunc(slices.Clone(affinity.ClusterNames), func(name string) bool { return name == cluster })
		weights := weightsOf(spec)
		if weights == nil {
			return
		}
		weights.StaticWeightList = nil
		for _, name := range affinity.ClusterNames {
			if replicas[name] > 0 {
				weights.StaticWeightList = append(weights.StaticWeightList, policyv1alpha1.StaticClusterWeight{
					TargetCluster: policyv1alpha1.ClusterAffinity{ClusterNames: []string{name}}, Weight: replicas[name],
				})
			}
		}
	})
}

// weightsOf returns the static weights of a policy, nil if it has none.
func weightsOf(spec *policyv1alpha1.PropagationSpec) *policyv1alpha1.ClusterPreferences {
	scheduling := spec.Placement.ReplicaScheduling
	if scheduling == nil || scheduling.WeightPreference == nil || len(scheduling.WeightPreference.StaticWeightList) == 0 {
		return nil
	}
	return scheduling.WeightPreference
}

// setReplicas sets the replicas of the template to those of the remaining clusters, which are the weights of the policy.
func (w *workload) setReplicas(ctx context.Context, policy *placing) error {
	weights := weightsOf(policy.spec)
	if weights == nil {
		return nil
	}
	total := int64(0)
	for i := range weights.StaticWeightList {
		total += weights.StaticWeightList[i].Weight
	}
	if total > 1<<31-1 {
		return fmt.Errorf("%s has weights that are no replicas", policy)
	}
	templates := w.Templates.Resource(w.resource).Namespace(w.template.GetNamespace())
	now, err := templates.Get(ctx, w.template.GetName(), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the template: %w", err)
	}
	revised, err := w.Interpreter.ReviseReplica(ctx, now, int32(total))
	if err != nil {
		return err
	}
	if apiequality.Semantic.DeepEqual(revised.Object["spec"], now.Object["spec"]) {
		return nil
	}
	if w.template, err = templates.Update(ctx, revised, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("changing the replicas of the template: %w", err)
	}
	return w.wrote("changed the replicas")
}

// dropOverrides removes a cluster from the rules of an override of the template.
func (w *workload) dropOverrides(ctx context.Context, policy *placing, name, cluster string) error {
	override, spec, err := w.ownOverride(ctx, name)
	if err != nil || override == nil {
		return err
	}
	before, _ := override.DeepCopyObject().(client.Object)
	if !slices.ContainsFunc(spec.OverrideRules, func(rule policyv1alpha1.RuleWithCluster) bool {
		return rule.TargetCluster != nil && slices.Contains(rule.TargetCluster.ClusterNames, cluster)
	}) {
		return nil
	}
	spec.OverrideRules = slices.DeleteFunc(spec.OverrideRules, func(rule policyv1alpha1.RuleWithCluster) bool {
		return rule.TargetCluster != nil && slices.Equal(rule.TargetCluster.ClusterNames, []string{cluster})
	})
	for i := range spec.OverrideRules {
		if target := spec.OverrideRules[i].TargetCluster; target != nil {
			target.ClusterNames = slices.DeleteFunc(target.ClusterNames, func(name string) bool { return name == cluster })
		}
	}
	if len(spec.OverrideRules) == 0 {
		if slices.Contains(policy.spec.DependentOverrides, name) {
			if err := w.change(ctx, policy, "removed the dependency on the override", func(spec *policyv1alpha1.PropagationSpec) {
				spec.DependentOverrides = slices.DeleteFunc(slices.Clone(spec.DependentOverrides), func(other string) bool { return other == name })
			}); err != nil {
				return err
			}
		}
		return w.deletePolicy(ctx, override)
	}
	if err := w.Client.Patch(ctx, override, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing %s %s: %w", kindOf(override), override.GetName(), err)
	}
	return w.wrote("changed the override")
}

// untilSame waits until the engine has rendered the template for the remaining clusters such that nothing changes there.
func (w *workload) untilSame(ctx context.Context, policy *placing) error {
	last := "the engine has not rendered it yet"
	err := until(ctx, func(ctx context.Context) (bool, error) {
		if err := w.readBinding(ctx); err != nil || !w.isPlaced(policy) {
			return false, err
		}
		for _, cluster := range policy.spec.Placement.ClusterAffinity.ClusterNames {
			work := &workv1alpha1.Work{}
			key := client.ObjectKey{Namespace: names.ExecutionNamespace(cluster), Name: names.WorkName(w.template.GetKind(), w.template.GetNamespace(), w.template.GetName())}
			if err := w.Client.Get(ctx, key, work); err != nil {
				return false, client.IgnoreNotFound(err)
			}
			manifest := &unstructured.Unstructured{}
			if len(work.Spec.Workload.Manifests) != 1 {
				return false, fmt.Errorf("work %s has %d manifests instead of one", key, len(work.Spec.Workload.Manifests))
			}
			if err := manifest.UnmarshalJSON(work.Spec.Workload.Manifests[0].Raw); err != nil {
				return false, fmt.Errorf("reading Work %s: %w", key, err)
			}
			live, err := w.inMember(ctx, cluster)
			if err != nil || live == nil {
				return false, err
			}
			field, err := w.Compare(ctx, cluster, live, manifest)
			if err != nil {
				return false, err
			}
			if field != "" {
				last = fmt.Sprintf("cluster %s would change: %s", cluster, field)
				return false, nil
			}
		}
		return true, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("%s; dispatching is still suspended by %s", last, policy)
	}
	return err
}

// isPlaced reports whether the binding is the one that the policy and the template ask for now.
func (w *workload) isPlaced(policy *placing) bool {
	if w.binding == nil {
		return false
	}
	placed := map[string]int64{}
	for _, target := range w.binding.Spec.Clusters {
		placed[target.Name] = int64(target.Replicas)
	}
	for _, name := range policy.spec.Placement.ClusterAffinity.ClusterNames {
		if _, chosen := placed[name]; !chosen {
			return false
		}
	}
	if weights := weightsOf(policy.spec); weights != nil {
		for _, weight := range weights.StaticWeightList {
			if placed[weight.TargetCluster.ClusterNames[0]] != weight.Weight {
				return false
			}
		}
	}
	return len(placed) == len(policy.spec.Placement.ClusterAffinity.ClusterNames)
}
