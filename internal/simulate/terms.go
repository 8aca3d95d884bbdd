package simulate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// spreadTerm is a hard topology spread constraint.
type spreadTerm struct {
	key        string
	maxSkew    int64
	minDomains int
	selector   labels.Selector
	// self means that the constraint matches the pod itself.
	self bool
	// honorAffinity and honorTaints exclude nodes that the pod cannot run on.
	honorAffinity, honorTaints bool
}

func compileSpread(pod *corev1.Pod) ([]spreadTerm, error) {
	var terms []spreadTerm
	for i := range pod.Spec.TopologySpreadConstraints {
		constraint := &pod.Spec.TopologySpreadConstraints[i]
		if constraint.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		selector, err := selectorOf(constraint.LabelSelector, constraint.MatchLabelKeys, nil, pod.Labels)
		if err != nil {
			return nil, fmt.Errorf("topologySpreadConstraints[%d]: %w", i, err)
		}
		terms = append(terms, spreadTerm{
			key: constraint.TopologyKey, maxSkew: int64(constraint.MaxSkew), minDomains: int(ptr.Deref(constraint.MinDomains, 1)),
			selector: selector, self: selector.Matches(labels.Set(pod.Labels)),
			honorAffinity: ptr.Deref(constraint.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor) == corev1.NodeInclusionPolicyHonor,
			honorTaints:   ptr.Deref(constraint.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore) == corev1.NodeInclusionPolicyHonor,
		})
	}
	return terms, nil
}

// podTerm is a required pod affinity or anti-affinity term.
type podTerm struct {
	key      string
	selector labels.Selector
	// namespaces of matching pods; nil means all.
	namespaces []string
	self       bool
}

// matches reports whether the term matches a pod.
func (t *podTerm) matches(namespace string, of labels.Set) bool {
	return (t.namespaces == nil || slices.Contains(t.namespaces, namespace)) && t.selector.Matches(of)
}

func compileAffinity(pod *corev1.Pod) (together, apart []podTerm, err error) {
	affinity := pod.Spec.Affinity
	if affinity == nil {
		return nil, nil, nil
	}
	if affinity.PodAffinity != nil {
		if together, err = compileTerms(pod, affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution); err != nil {
			return nil, nil, fmt.Errorf("reading the pod affinity: %w", err)
		}
	}
	if affinity.PodAntiAffinity != nil {
		if apart, err = compileTerms(pod, affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution); err != nil {
			return nil, nil, fmt.Errorf("reading the pod anti-affinity: %w", err)
		}
	}
	return together, apart, nil
}

// compileTerms compiles affinity terms. Namespace labels are unknown here, so a namespace selector matches every
// namespace.
func compileTerms(pod *corev1.Pod, terms []corev1.PodAffinityTerm) ([]podTerm, error) {
	var compiled []podTerm
	for i := range terms {
		term := &terms[i]
		selector, err := selectorOf(term.LabelSelector, term.MatchLabelKeys, term.MismatchLabelKeys, pod.Labels)
		if err != nil {
			return nil, err
		}
		one := podTerm{key: term.TopologyKey, selector: selector, namespaces: term.Namespaces}
		switch {
		case term.NamespaceSelector != nil:
			one.namespaces = nil
		case len(one.namespaces) == 0:
			one.namespaces = []string{pod.Namespace}
		}
		one.self = one.matches(pod.Namespace, pod.Labels)
		compiled = append(compiled, one)
	}
	return compiled, nil
}

// selectorOf extends a selector: the values of some labels must equal, or differ from, the pod's own.
func selectorOf(selector *metav1.LabelSelector, equal, differ []string, own map[string]string) (labels.Selector, error) {
	if selector == nil {
		return labels.Nothing(), nil
	}
	extended := selector.DeepCopy()
	for _, key := range equal {
		if value, has := own[key]; has {
			extended.MatchExpressions = append(extended.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
		}
	}
	for _, key := range differ {
		if value, has := own[key]; has {
			extended.MatchExpressions = append(extended.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: []string{value}})
		}
	}
	return metav1.LabelSelectorAsSelector(extended)
}
