package protection

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// TestUnknownNamespaces checks that a policy for some namespaces protects in all of them while their labels are not known.
func TestUnknownNamespaces(t *testing.T) {
	p, err := compile(&cellplanev1alpha1.ProtectionPolicy{Spec: cellplanev1alpha1.ProtectionPolicySpec{ResourceSelectors: []cellplanev1alpha1.ProtectedResources{{
		APIGroups: []string{"apps"}, Kinds: []string{"Deployment"},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "production"}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	deployment := schema.GroupKind{Group: "apps", Kind: "Deployment"}
	for _, test := range []struct {
		name string
		of   target
		want bool
	}{
		{"picked", target{GroupKind: deployment, namespaceLabels: labels.Set{"stage": "production"}}, true},
		{"another", target{GroupKind: deployment, namespaceLabels: labels.Set{"stage": "test"}}, false},
		{"unknown", target{GroupKind: deployment, unknownNamespace: true}, true},
		{"unknown, of another kind", target{GroupKind: schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, unknownNamespace: true}, false},
	} {
		if got := p.picks(test.of); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestReleases checks which changes of labels take objects out of a policy.
func TestReleases(t *testing.T) {
	p, err := compile(&cellplanev1alpha1.ProtectionPolicy{Spec: cellplanev1alpha1.ProtectionPolicySpec{ResourceSelectors: []cellplanev1alpha1.ProtectedResources{
		{APIGroups: []string{"apps"}, Kinds: []string{"Deployment"}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"precious": "yes"}}},
		{APIGroups: []string{"apps"}, Kinds: []string{"*"}, Namespaces: []string{"shop"}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "production"}}},
	}}})
	if err != nil || !p.selective {
		t.Fatal(err, p.selective)
	}
	deployment := func(labels labels.Set) target {
		return target{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, namespace: "a", name: "x", labels: labels}
	}
	namespace := func(name string, labels labels.Set) target {
		return target{GroupKind: schema.GroupKind{Kind: "Namespace"}, name: name, labels: labels, namespaceLabels: labels}
	}
	precious, production := labels.Set{"precious": "yes"}, labels.Set{"stage": "production"}
	for name, test := range map[string]struct {
		before, after   target
		selects, leaves bool
	}{
		"the label goes":                     {deployment(precious), deployment(nil), true, true},
		"the label changes":                  {deployment(precious), deployment(labels.Set{"precious": "no"}), true, true},
		"another label comes":                {deployment(precious), deployment(labels.Set{"precious": "yes", "a": "b"}), true, false},
		"it was not selected":                {deployment(nil), deployment(labels.Set{"a": "b"}), false, false},
		"the label of the namespace goes":    {namespace("shop", production), namespace("shop", nil), true, true},
		"the label of the namespace stays":   {namespace("shop", production), namespace("shop", labels.Set{"stage": "production", "a": "b"}), true, false},
		"the label of another namespace":     {namespace("other", production), namespace("other", nil), false, false},
		"a namespace that was not concerned": {namespace("shop", nil), namespace("shop", precious), false, false},
	} {
		if got := p.selectsByLabels(test.before); got != test.selects {
			t.Errorf("%s: selected by labels: %v", name, got)
		}
		if got := p.releases(test.before, test.after); got != test.leaves {
			t.Errorf("%s: released: %v", name, got)
		}
	}
}

// TestGroups checks that a policy counts in every group that serves the same objects.
func TestGroups(t *testing.T) {
	for _, test := range []struct {
		group string
		of    schema.GroupKind
		want  bool
	}{
		{"", schema.GroupKind{Kind: "Event"}, true},
		{"", schema.GroupKind{Group: "events.k8s.io", Kind: "Event"}, true},
		{"events.k8s.io", schema.GroupKind{Kind: "Event"}, true},
		{"apps", schema.GroupKind{Kind: "Event"}, false},
		{"", schema.GroupKind{Group: "example.io", Kind: "Event"}, false},
	} {
		s := selector{groups: []string{test.group}, kinds: []string{"Event"}}
		if got := s.names(test.of); got != test.want {
			t.Errorf("a policy for group %q counts for %s: %v, want %v", test.group, test.of, got, test.want)
		}
	}
}
