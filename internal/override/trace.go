package override

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// Trace records which rules were applied to a manifest.
type Trace struct {
	clusterWide []*rule
	namespaced  []*rule
}

// record is the entry of one applied rule in an annotation.
type record struct {
	PolicyName string                    `json:"policyName"`
	Overriders policyv1alpha1.Overriders `json:"overriders"`
}

// Empty reports whether no rule was applied.
func (t Trace) Empty() bool { return len(t.clusterWide) == 0 && len(t.namespaced) == 0 }

// Policies returns the applied policies, each once, in the order of application.
func (t Trace) Policies() []Reference {
	var references []Reference
	for _, rules := range [][]*rule{t.clusterWide, t.namespaced} {
		for _, rule := range rules {
			if !slices.Contains(references, rule.policy) {
				references = append(references, rule.policy)
			}
		}
	}
	return references
}

// Annotations returns the annotations of a Work that record the applied rules, sorted by policy name as readers expect.
// Empty records are left out.
func (t Trace) Annotations() map[string]string {
	annotations := map[string]string{}
	if len(t.clusterWide) > 0 {
		annotations[names.AppliedClusterOverridesAnnotation] = recordOf(t.clusterWide)
	}
	if len(t.namespaced) > 0 {
		annotations[names.AppliedOverridesAnnotation] = recordOf(t.namespaced)
	}
	return annotations
}

func recordOf(rules []*rule) string {
	sorted := slices.Clone(rules)
	slices.SortStableFunc(sorted, func(a, b *rule) int { return cmp.Compare(a.policy.Name, b.policy.Name) })
	var list bytes.Buffer
	for i, rule := range sorted {
		list.WriteByte("[,"[min(i, 1)])
		list.Write(rule.record)
	}
	list.WriteByte(']')
	return list.String()
}
