package adopt

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// divide decides how the policy gives each cluster the replicas it has, and sets the replicas of the template in all
// members accordingly.
func (p *Planner) divide(ctx context.Context, item *Item, members []member) error {
	var total int64
	uneven := false
	for _, m := range members {
		total += int64(m.replicas)
		uneven = uneven || m.replicas != members[0].replicas
	}
	divided := uneven || p.autoscaled(item) && total > 0
	if !item.Scaled || !divided || item.Key.Kind == "Job" {
		// The completions of a Job would be divided in proportion to its replicas, so its overrides set both.
		return nil
	}
	if total > 1<<31-1 {
		item.refuse("the clusters have %d replicas together, which is more than a template can have", total)
		return nil
	}
	for i := range members {
		if members[i].replicas == 0 {
			item.LeftOut = append(item.LeftOut, members[i].cluster)
			continue
		}
		revised, err := p.Interpreter.ReviseReplica(ctx, members[i].object, int32(total))
		if err != nil {
			return err
		}
		members[i].object = revised
	}
	item.Policy = &policyv1alpha1.PropagationPolicy{}
	scheduling := &policyv1alpha1.ReplicaSchedulingStrategy{
		ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDivided, ReplicaDivisionPreference: policyv1alpha1.ReplicaDivisionPreferenceWeighted,
		WeightPreference: &policyv1alpha1.ClusterPreferences{},
	}
	for _, m := range members {
		if m.replicas > 0 {
			scheduling.WeightPreference.StaticWeightList = append(scheduling.WeightPreference.StaticWeightList, policyv1alpha1.StaticClusterWeight{
				TargetCluster: policyv1alpha1.ClusterAffinity{ClusterNames: []string{m.cluster}}, Weight: int64(m.replicas),
			})
		}
	}
	item.Policy.Spec.Placement.ReplicaScheduling = scheduling
	return nil
}

// PolicyName is the name of the policies of the group.
func (i *Item) PolicyName() string { return names.BindingName(i.Key.Kind, i.Key.Name) }

// PolicyKind is the kind of the policy that places the template.
func (i *Item) PolicyKind() string {
	if i.ClusterPolicy != nil {
		return "ClusterPropagationPolicy"
	}
	return "PropagationPolicy"
}

// NewPolicy returns a copy of the policy that places the template, and its spec.
func (i *Item) NewPolicy() (client.Object, *policyv1alpha1.PropagationSpec) {
	if i.ClusterPolicy != nil {
		policy := i.ClusterPolicy.DeepCopy()
		return policy, &policy.Spec
	}
	policy := i.Policy.DeepCopy()
	return policy, &policy.Spec
}

// propagation returns the spec of the item's policy.
func (i *Item) propagation() *policyv1alpha1.PropagationSpec {
	if i.ClusterPolicy != nil {
		return &i.ClusterPolicy.Spec
	}
	return &i.Policy.Spec
}

// setPolicies completes the policy and makes the override.
func (i *Item) setPolicies(rules []policyv1alpha1.RuleWithCluster) {
	apiVersion, kind := i.Key.ToAPIVersionAndKind()
	selectors := []policyv1alpha1.ResourceSelector{{APIVersion: apiVersion, Kind: kind, Namespace: i.Key.Namespace, Name: i.Key.Name}}
	policy := i.Policy
	if policy == nil {
		policy = &policyv1alpha1.PropagationPolicy{}
	}
	var clusters []string
	for _, target := range i.Targets {
		if !i.IsLeftOut(target.Cluster) {
			clusters = append(clusters, target.Cluster)
		}
	}
	spec := &policy.Spec
	spec.ResourceSelectors = selectors
	spec.Placement.ClusterAffinity = &policyv1alpha1.ClusterAffinity{ClusterNames: clusters}
	if i.Scaled && spec.Placement.ReplicaScheduling == nil {
		spec.Placement.ReplicaScheduling = &policyv1alpha1.ReplicaSchedulingStrategy{ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDuplicated}
	}
	// The objects exist and are not ours yet. If the template is deleted, they stay.
	spec.ConflictResolution = policyv1alpha1.ConflictOverwrite
	spec.PreserveResourcesOnDeletion = ptr.To(true)
	spec.Suspension = &policyv1alpha1.Suspension{Dispatching: ptr.To(true)}
	if len(rules) > 0 {
		i.Override = &policyv1alpha1.OverridePolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: policyv1alpha1.GroupVersion.String(), Kind: "OverridePolicy"},
			ObjectMeta: metav1.ObjectMeta{Namespace: i.Key.Namespace, Name: i.PolicyName()},
			Spec:       policyv1alpha1.OverrideSpec{ResourceSelectors: selectors, OverrideRules: rules},
		}
		spec.DependentOverrides = []string{i.Override.Name}
	}
	meta := metav1.ObjectMeta{Namespace: i.Key.Namespace, Name: i.PolicyName()}
	if i.Key.Namespace == "" {
		i.Policy = nil
		i.ClusterPolicy = &policyv1alpha1.ClusterPropagationPolicy{
			TypeMeta: metav1.TypeMeta{APIVersion: policyv1alpha1.GroupVersion.String(), Kind: "ClusterPropagationPolicy"}, ObjectMeta: meta, Spec: *spec,
		}
		return
	}
	policy.TypeMeta = metav1.TypeMeta{APIVersion: policyv1alpha1.GroupVersion.String(), Kind: "PropagationPolicy"}
	policy.ObjectMeta = meta
	i.Policy = policy
}
