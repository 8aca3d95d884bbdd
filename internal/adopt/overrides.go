package adopt

import (
	"slices"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/override"
)

// overrides are the override policies of the federation. Those that name all they select are found by name.
type overrides struct {
	general []sourced
	named   map[string][]sourced
}

// sourced is a compiled policy and its name.
type sourced struct {
	override.Reference
	*override.Policy
}

func newOverrides(namespaced []*policyv1alpha1.OverridePolicy, clusterWide []*policyv1alpha1.ClusterOverridePolicy) overrides {
	o := overrides{named: map[string][]sourced{}}
	for _, policy := range namespaced {
		o.add(sourced{override.Reference{Namespace: policy.Namespace, Name: policy.Name}, override.Compile(policy)}, &policy.Spec)
	}
	for _, policy := range clusterWide {
		o.add(sourced{override.Reference{Name: policy.Name}, override.CompileCluster(policy)}, &policy.Spec)
	}
	return o
}

func (o *overrides) add(policy sourced, spec *policyv1alpha1.OverrideSpec) {
	unnamed := func(s policyv1alpha1.ResourceSelector) bool { return s.Name == "" }
	if len(spec.ResourceSelectors) == 0 || slices.ContainsFunc(spec.ResourceSelectors, unnamed) {
		o.general = append(o.general, policy)
		return
	}
	for i := range spec.ResourceSelectors {
		name := spec.ResourceSelectors[i].Name
		o.named[name] = append(o.named[name], policy)
	}
}

// with returns the overrides that may apply to a group, with those of its plan.
func (o *overrides) with(item *Item) *override.Set {
	own := override.Reference{Namespace: item.Key.Namespace, Name: item.PolicyName()}
	var applied []*override.Policy
	if item.Override != nil {
		applied = append(applied, override.Compile(item.Override))
	}
	for _, list := range [][]sourced{o.general, o.named[item.Key.Name]} {
		for _, policy := range list {
			if policy.Reference != own && !slices.Contains(applied, policy.Policy) {
				applied = append(applied, policy.Policy)
			}
		}
	}
	return override.NewSet(applied...)
}
