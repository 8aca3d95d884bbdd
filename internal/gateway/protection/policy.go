package protection

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// policy is a compiled ProtectionPolicy.
type policy struct {
	name      string
	warn      bool
	selectors []selector
	// selective is set if a change of labels can take an object out of the policy.
	selective bool
	deletion  *cellplanev1alpha1.DeletionProtection
	scaleDown *cellplanev1alpha1.ScaleDownProtection
}

// selector selects objects.
type selector struct {
	groups, kinds, namespaces []string
	namespaceLabels, labels   labels.Selector
}

// target is the object of a request.
type target struct {
	schema.GroupKind
	namespace, name string
	namespaceLabels labels.Set
	labels          labels.Set
	// unknownNamespace is set if the namespace's labels are not known.
	unknownNamespace bool
}

func compile(p *cellplanev1alpha1.ProtectionPolicy) (policy, error) {
	compiled := policy{name: p.Name, warn: p.Spec.Action == cellplanev1alpha1.ProtectionWarn, scaleDown: p.Spec.ScaleDown}
	if d := p.Spec.Deletion; d != nil && ptr.Deref(d.Enabled, true) {
		compiled.deletion = d
	}
	for _, r := range p.Spec.ResourceSelectors {
		s := selector{groups: r.APIGroups, kinds: r.Kinds, namespaces: r.Namespaces}
		var err error
		if s.namespaceLabels, err = selectorOf(r.NamespaceSelector); err != nil {
			return policy{}, fmt.Errorf("ProtectionPolicy %s: namespaceSelector: %w", p.Name, err)
		}
		if s.labels, err = selectorOf(r.LabelSelector); err != nil {
			return policy{}, fmt.Errorf("ProtectionPolicy %s: labelSelector: %w", p.Name, err)
		}
		compiled.selective = compiled.selective || !s.labels.Empty() || !s.namespaceLabels.Empty()
		compiled.selectors = append(compiled.selectors, s)
	}
	return compiled, nil
}

func selectorOf(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// picks reports whether one of the policy's selectors matches an object.
func (p *policy) picks(t target) bool {
	return slices.ContainsFunc(p.selectors, func(s selector) bool { return s.mayPick(t) && s.labels.Matches(t.labels) })
}

// selectsByLabels reports whether the policy selects an object, or the objects of a namespace, by labels.
func (p *policy) selectsByLabels(t target) bool {
	return slices.ContainsFunc(p.selectors, func(s selector) bool {
		return !s.labels.Empty() && s.mayPick(t) && s.labels.Matches(t.labels) || s.reaches(t)
	})
}

// mayConcern reports whether the policy could object to changes of an object if it had other labels or replicas.
func (p *policy) mayConcern(t target) bool {
	if p.scaleDown == nil && !p.selective {
		return false
	}
	return slices.ContainsFunc(p.selectors, func(s selector) bool {
		return s.mayPick(t) || t.Group == "" && t.Kind == "Namespace" && !s.namespaceLabels.Empty()
	})
}

// releases reports whether a change of labels takes an object, or the objects of a namespace, out of the policy.
func (p *policy) releases(before, after target) bool {
	if p.picks(before) && !p.picks(after) {
		return true
	}
	return slices.ContainsFunc(p.selectors, func(s selector) bool { return s.reaches(before) && !s.reaches(after) })
}

// reaches reports whether a selector selects objects of a namespace by the labels of the namespace.
func (s *selector) reaches(t target) bool {
	return t.Group == "" && t.Kind == "Namespace" && !s.namespaceLabels.Empty() && s.namespaceLabels.Matches(t.labels) &&
		(len(s.namespaces) == 0 || slices.Contains(s.namespaces, t.name))
}

// mayPick reports whether a selector matches the kind and namespace of an object, whatever its labels.
func (s *selector) mayPick(t target) bool {
	return s.names(t.GroupKind) &&
		(len(s.namespaces) == 0 || slices.Contains(s.namespaces, t.namespace)) &&
		(t.unknownNamespace || s.namespaceLabels.Matches(t.namespaceLabels))
}

// shared are the groups in which API servers serve the objects of another group.
var shared = map[schema.GroupKind]string{
	{Group: "", Kind: "Event"}:              "events.k8s.io",
	{Group: "events.k8s.io", Kind: "Event"}: "",
}

// names reports whether a selector names a kind, in any of the groups that serve its objects.
func (s *selector) names(kind schema.GroupKind) bool {
	also, isShared := shared[kind]
	return has(s.kinds, kind.Kind) && (has(s.groups, kind.Group) || isShared && has(s.groups, also))
}

func has(list []string, value string) bool {
	return slices.Contains(list, value) || slices.Equal(list, []string{"*"})
}
