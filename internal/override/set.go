package override

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/rights"
)

// Set has compiled policies, indexed by what they select. It is immutable and safe for concurrent use. A nil Set
// overrides nothing.
type Set struct {
	clusterWide index
	namespaced  index
}

// NewSet indexes policies. A Set is cheap to build compared with compiling policies: keep the policies and build a new
// Set when one changes.
func NewSet(policies ...*Policy) *Set {
	set := &Set{clusterWide: newIndex(), namespaced: newIndex()}
	for _, policy := range policies {
		if policy.reference.Namespace == "" {
			set.clusterWide.add(policy)
		} else {
			set.namespaced.add(policy)
		}
	}
	return set
}

// Apply returns the object as the cluster should get it, and a record of the applied policies. The input is never
// modified; if no policy matches, it is returned without a copy.
//
// ClusterOverridePolicies are applied first, then the OverridePolicies of the object's namespace, which see the labels
// set by the former. Within each, policies that select more narrowly are applied later and so win; otherwise they are
// ordered by name. The rules of a policy are applied in their order.
//
// If an OverridePolicy fails for an object that grants rights, Apply returns the object without OverridePolicies together with
// the error: its author must not be able to keep a Role in a member from being reduced.
func (s *Set) Apply(obj *unstructured.Unstructured, cluster *clusterv1alpha1.Cluster) (*unstructured.Unstructured, Trace, error) {
	if s == nil {
		return obj, Trace{}, nil
	}
	result, clusterWide, err := applyAll(obj, obj, s.clusterWide.selecting(obj), cluster)
	if err != nil {
		return nil, Trace{}, err
	}
	if obj.GetNamespace() == "" {
		return result, Trace{clusterWide: clusterWide}, nil
	}
	grants := len(rights.Of(result)) > 0
	if grants {
		obj = result // applyAll leaves it as it is
	}
	overridden, namespaced, err := applyAll(obj, result, s.namespaced.selecting(result), cluster)
	switch {
	case err != nil && grants:
		return result, Trace{clusterWide: clusterWide}, err
	case err != nil:
		return nil, Trace{}, err
	}
	return overridden, Trace{clusterWide: clusterWide, namespaced: namespaced}, nil
}

// Selecting returns the policies that select the object, in any cluster, in the order they are applied.
func (s *Set) Selecting(obj *unstructured.Unstructured) []Reference {
	if s == nil {
		return nil
	}
	var references []Reference
	for _, match := range s.clusterWide.selecting(obj) {
		references = append(references, match.policy.reference)
	}
	if obj.GetNamespace() == "" {
		return references
	}
	for _, match := range s.namespaced.selecting(obj) {
		references = append(references, match.policy.reference)
	}
	return references
}

// applyAll applies the rules of the matching policies that target the cluster. It copies the object before the
// first change, unless current is already a copy of original.
func applyAll(original, current *unstructured.Unstructured, matches []match, cluster *clusterv1alpha1.Cluster) (*unstructured.Unstructured, []*rule, error) {
	var applied []*rule
	for _, match := range matches {
		if match.err != nil {
			return nil, nil, fmt.Errorf("%s is invalid; correct or delete it: %w", match.policy.reference, match.err)
		}
		for i := range match.policy.rules {
			rule := &match.policy.rules[i]
			if !rule.target.Matches(cluster) {
				continue
			}
			if current == original && len(rule.operations) > 0 {
				current = original.DeepCopy()
			}
			if err := match.policy.apply(rule, current, original); err != nil {
				return nil, nil, fmt.Errorf("applying %s for cluster %s: %w", match.policy.reference, cluster.Name, err)
			}
			applied = append(applied, rule)
		}
	}
	return current, applied, nil
}

// apply applies a rule. The rights that an object grants are compared before and after, unless the policy may change them.
func (p *Policy) apply(r *rule, obj, original *unstructured.Unstructured) error {
	before := rights.Of(obj)
	if err := r.apply(obj, original); err != nil {
		return err
	}
	if path, changed := rights.Of(obj).Changed(before); changed && !p.mayChangeRights {
		return fmt.Errorf("%s changes %s, but an override must not change what a %s grants; an administrator can permit it with the annotation %s=true on a ClusterOverridePolicy",
			r.where, path, obj.GetKind(), names.MayChangeRightsAnnotation)
	}
	return nil
}

func (r *rule) apply(obj, original *unstructured.Unstructured) error {
	for i := range r.operations {
		if err := r.operations[i].apply(obj.Object); err != nil {
			return fmt.Errorf("%s.%s: %w", r.where, r.operations[i].where, err)
		}
	}
	if field, ok := changedIdentity(obj, original); ok {
		return fmt.Errorf("%s changes %s, but an override must not change the identity of an object", r.where, field)
	}
	return nil
}

// changedIdentity reports an override that changes namespace, name or kind of an object, over which the policy's author
// may have no authority. Another version of the same API is allowed: older clusters may need one.
func changedIdentity(obj, original *unstructured.Unstructured) (string, bool) {
	switch {
	case obj.GetKind() != original.GetKind():
		return "kind", true
	case obj.GetName() != original.GetName():
		return "metadata.name", true
	case obj.GetNamespace() != original.GetNamespace():
		return "metadata.namespace", true
	case obj.GetAPIVersion() != original.GetAPIVersion() && apiGroup(obj) != apiGroup(original):
		return "the group in apiVersion", true
	default:
		return "", false
	}
}

func apiGroup(obj *unstructured.Unstructured) string {
	gv, err := schema.ParseGroupVersion(obj.GetAPIVersion())
	if err != nil {
		return obj.GetAPIVersion()
	}
	return gv.Group
}

// match is a policy that selects an object, or the error why it is invalid.
type match struct {
	policy   *Policy
	priority priority
	err      error
}

// index finds policies by the four things a selector may name. A selector without namespace or name is
// under the empty string, so that an object is found with at most four lookups.
type index struct {
	selectors  map[selectorKey][]indexed
	everything map[string][]*Policy // by namespace of the policy
}

type indexed struct {
	policy   *Policy
	selector *selector
}

func newIndex() index {
	return index{selectors: map[selectorKey][]indexed{}, everything: map[string][]*Policy{}}
}

func (ix *index) add(policy *Policy) {
	if policy.selectsEverything {
		namespace := policy.reference.Namespace
		ix.everything[namespace] = append(ix.everything[namespace], policy)
		return
	}
	for i := range policy.selectors {
		selector := &policy.selectors[i]
		ix.selectors[selector.key] = append(ix.selectors[selector.key], indexed{policy, selector})
	}
}

func (ix *index) selecting(obj *unstructured.Unstructured) []match {
	if len(ix.selectors) == 0 && len(ix.everything) == 0 {
		return nil
	}
	key := keyOf(obj)
	matches := ix.lookup(nil, obj, key)
	matches = ix.lookup(matches, obj, selectorKey{key.apiVersion, key.kind, key.namespace, ""})
	if key.namespace != "" {
		matches = ix.lookup(matches, obj, selectorKey{key.apiVersion, key.kind, "", key.name})
		matches = ix.lookup(matches, obj, selectorKey{key.apiVersion, key.kind, "", ""})
		for _, policy := range ix.everything[key.namespace] {
			matches = appendMatch(matches, match{policy, matchesAll, policy.err})
		}
	}
	for _, policy := range ix.everything[""] {
		matches = appendMatch(matches, match{policy, matchesAll, policy.err})
	}
	slices.SortFunc(matches, func(a, b match) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.policy.reference.Name, b.policy.reference.Name))
	})
	return matches
}

func (ix *index) lookup(matches []match, obj *unstructured.Unstructured, key selectorKey) []match {
	for _, candidate := range ix.selectors[key] {
		if candidate.selector.matchesLabels(obj) {
			err := cmp.Or(candidate.policy.err, candidate.selector.err)
			matches = appendMatch(matches, match{candidate.policy, candidate.selector.priority, err})
		}
	}
	return matches
}

// appendMatch keeps one match per policy, the one of its narrowest selector.
func appendMatch(matches []match, found match) []match {
	for i := range matches {
		if matches[i].policy == found.policy {
			matches[i].priority = max(matches[i].priority, found.priority)
			matches[i].err = cmp.Or(matches[i].err, found.err)
			return matches
		}
	}
	return append(matches, found)
}
