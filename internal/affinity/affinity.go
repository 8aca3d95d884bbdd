// Package affinity matches member clusters against a ClusterAffinity.
//
// An affinity is compiled once and matched often, for every cluster of every binding, so matching neither parses
// nor allocates.
package affinity

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// Matcher is a compiled ClusterAffinity. It is immutable and safe for concurrent use. The zero Matcher matches
// every cluster.
type Matcher struct {
	names   names
	exclude names
	labels  labels.Selector
	fields  []requirement
}

// Compile validates and compiles an affinity. A nil affinity matches every cluster.
func Compile(affinity *policyv1alpha1.ClusterAffinity) (Matcher, error) {
	if affinity == nil {
		return Matcher{}, nil
	}
	matcher := Matcher{names: newNames(affinity.ClusterNames), exclude: newNames(affinity.ExcludeClusters)}
	if affinity.LabelSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(affinity.LabelSelector)
		if err != nil {
			return Matcher{}, fmt.Errorf("labelSelector: %w", err)
		}
		if !selector.Empty() {
			matcher.labels = selector
		}
	}
	if affinity.FieldSelector != nil {
		for i := range affinity.FieldSelector.MatchExpressions {
			requirement, err := compileRequirement(&affinity.FieldSelector.MatchExpressions[i])
			if err != nil {
				return Matcher{}, fmt.Errorf("fieldSelector.matchExpressions[%d]: %w", i, err)
			}
			matcher.fields = append(matcher.fields, requirement)
		}
	}
	return matcher, nil
}

// Matches reports whether the cluster is not excluded and satisfies every part of the affinity.
func (m Matcher) Matches(cluster *clusterv1alpha1.Cluster) bool {
	if m.exclude.has(cluster.Name) {
		return false
	}
	if !m.names.empty() && !m.names.has(cluster.Name) {
		return false
	}
	if m.labels != nil && !m.labels.Matches(labels.Set(cluster.Labels)) {
		return false
	}
	for i := range m.fields {
		if !m.fields[i].matches(&cluster.Spec) {
			return false
		}
	}
	return true
}

// MatchesEverything reports whether the affinity restricts nothing.
func (m Matcher) MatchesEverything() bool {
	return m.names.empty() && m.exclude.empty() && m.labels == nil && len(m.fields) == 0
}

// requirement is one expression on a field of a cluster's spec.
type requirement struct {
	field    func(*clusterv1alpha1.ClusterSpec) string // nil for zones, which can have several values
	operator corev1.NodeSelectorOperator
	values   []string
}

func compileRequirement(expression *corev1.NodeSelectorRequirement) (requirement, error) {
	compiled := requirement{operator: expression.Operator, values: slices.Clone(expression.Values)}
	switch expression.Key {
	case "provider":
		compiled.field = func(spec *clusterv1alpha1.ClusterSpec) string { return spec.Provider }
	case "region":
		compiled.field = func(spec *clusterv1alpha1.ClusterSpec) string { return spec.Region }
	case "zone":
	default:
		return requirement{}, fmt.Errorf("unknown key %q, use provider, region or zone", expression.Key)
	}
	switch expression.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(expression.Values) == 0 {
			return requirement{}, fmt.Errorf("operator %s needs at least one value", expression.Operator)
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(expression.Values) > 0 {
			return requirement{}, fmt.Errorf("operator %s takes no values", expression.Operator)
		}
	case "":
		return requirement{}, errors.New("the operator is missing, use In or NotIn")
	default:
		return requirement{}, fmt.Errorf("unknown operator %q, use In or NotIn", expression.Operator)
	}
	return compiled, nil
}

func (r *requirement) matches(spec *clusterv1alpha1.ClusterSpec) bool {
	if r.field == nil {
		return r.matchesZones(spec)
	}
	value := r.field(spec)
	switch r.operator {
	case corev1.NodeSelectorOpIn:
		return value != "" && slices.Contains(r.values, value)
	case corev1.NodeSelectorOpNotIn:
		return value == "" || !slices.Contains(r.values, value)
	case corev1.NodeSelectorOpExists:
		return value != ""
	default: // DoesNotExist: compileRequirement rejects all others.
		return value == ""
	}
}

// matchesZones handles clusters with several zones, which may run a pod in any of them: In requires that all zones
// are listed, NotIn that none is.
func (r *requirement) matchesZones(spec *clusterv1alpha1.ClusterSpec) bool {
	zones := spec.Zones
	if len(zones) == 0 && spec.Zone != "" {
		// Older clusters have only the deprecated single field.
		single := [1]string{spec.Zone}
		zones = single[:]
	}
	switch r.operator {
	case corev1.NodeSelectorOpIn:
		for _, zone := range zones {
			if !slices.Contains(r.values, zone) {
				return false
			}
		}
		return len(zones) > 0
	case corev1.NodeSelectorOpNotIn:
		for _, zone := range zones {
			if slices.Contains(r.values, zone) {
				return false
			}
		}
		return true
	case corev1.NodeSelectorOpExists:
		return len(zones) > 0
	default: // DoesNotExist: compileRequirement rejects all others.
		return len(zones) == 0
	}
}

// names is a set of cluster names. A slice is faster for the usual few names.
type names struct {
	few  []string
	many map[string]struct{}
}

const fewNames = 16

func newNames(list []string) names {
	if len(list) <= fewNames {
		return names{few: slices.Clone(list)}
	}
	many := make(map[string]struct{}, len(list))
	for _, name := range list {
		many[name] = struct{}{}
	}
	return names{many: many}
}

func (n names) empty() bool { return len(n.few) == 0 && len(n.many) == 0 }

func (n names) has(name string) bool {
	if n.many != nil {
		_, ok := n.many[name]
		return ok
	}
	return slices.Contains(n.few, name)
}
