package placement_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/placement"
)

func TestInNamespace(t *testing.T) {
	for _, test := range []struct {
		resource, namespace string
		want                placement.Place
	}{
		{"deployments.apps", "shop", placement.ByName},
		{"configmaps", "shop", placement.ByName},
		{"secrets", "shop", placement.ByName},
		{"secrets", "karmada-cluster", placement.OnHub},
		{"configmaps", "karmada-system", placement.OnHub},
		{"leases.coordination.k8s.io", "karmada-system", placement.OnHub},
		{"works.work.karmada.io", "karmada-es-member1", placement.Anywhere},
		{"resourcebindings.work.karmada.io", "shop", placement.ByTemplate},
		{"events", "shop", placement.Anywhere},
		{"events.events.k8s.io", "shop", placement.Anywhere},
		{"propagationpolicies.policy.karmada.io", "shop", placement.OnHub},
		{"overridepolicies.policy.karmada.io", "shop", placement.OnHub},
		{"roles.rbac.authorization.k8s.io", "shop", placement.OnHub},
		{"rolebindings.rbac.authorization.k8s.io", "shop", placement.OnHub},
		{"serviceaccounts", "shop", placement.OnHub},
		{"resourcequotas", "shop", placement.OnHub},
		{"localsubjectaccessreviews.authorization.k8s.io", "shop", placement.OnHub},
		{"widgets.example.io", "shop", placement.ByName},
	} {
		if got := placement.InNamespace(schema.ParseGroupResource(test.resource), test.namespace); got != test.want {
			t.Errorf("%s in %s: got %v, want %v", test.resource, test.namespace, got, test.want)
		}
	}
}

func TestOfObject(t *testing.T) {
	for _, test := range []struct {
		resource, namespace, name string
		want                      placement.Place
	}{
		{"configmaps", "kube-public", "cluster-info", placement.OnHub},
		{"configmaps", "shop", "cluster-info", placement.ByName},
		{"secrets", "kube-system", "bootstrap-token-abcdef", placement.OnHub},
		{"secrets", "kube-system", "other", placement.ByName},
		{"secrets", "kube-system", "", placement.ByName},
		{"secrets", "shop", "bootstrap-token-abcdef", placement.ByName},
		{"secrets.example.io", "kube-system", "bootstrap-token-abcdef", placement.ByName},
		{"roles.rbac.authorization.k8s.io", "shop", "any", placement.OnHub},
	} {
		if got := placement.OfObject(schema.ParseGroupResource(test.resource), test.namespace, test.name); got != test.want {
			t.Errorf("%s %s/%s: got %v, want %v", test.resource, test.namespace, test.name, got, test.want)
		}
	}
	secrets := schema.GroupResource{Resource: "secrets"}
	if !placement.AreBootstrapTokens(secrets, "kube-system", "type=bootstrap.kubernetes.io/token") || placement.AreBootstrapTokens(secrets, "kube-system", "type=Opaque") ||
		placement.AreBootstrapTokens(secrets, "", "type=bootstrap.kubernetes.io/token") {
		t.Error("only a list of bootstrap tokens in kube-system is one of bootstrap tokens")
	}
}
