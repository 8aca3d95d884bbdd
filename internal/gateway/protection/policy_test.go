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
