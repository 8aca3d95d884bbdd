package kinds_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/gateway/kinds"
)

func TestInNamespace(t *testing.T) {
	for _, test := range []struct {
		resource, namespace string
		want                kinds.Placement
	}{
		{"deployments.apps", "shop", kinds.ByName},
		{"configmaps", "shop", kinds.ByName},
		{"secrets", "shop", kinds.ByName},
		{"secrets", "karmada-cluster", kinds.OnHub},
		{"configmaps", "karmada-system", kinds.OnHub},
		{"leases.coordination.k8s.io", "karmada-system", kinds.OnHub},
		{"works.work.karmada.io", "karmada-es-member1", kinds.Anywhere},
		{"resourcebindings.work.karmada.io", "shop", kinds.ByTemplate},
		{"events", "shop", kinds.Anywhere},
		{"events.events.k8s.io", "shop", kinds.Anywhere},
		{"propagationpolicies.policy.karmada.io", "shop", kinds.OnHub},
		{"overridepolicies.policy.karmada.io", "shop", kinds.OnHub},
		{"roles.rbac.authorization.k8s.io", "shop", kinds.OnHub},
		{"rolebindings.rbac.authorization.k8s.io", "shop", kinds.OnHub},
		{"serviceaccounts", "shop", kinds.OnHub},
		{"resourcequotas", "shop", kinds.OnHub},
		{"localsubjectaccessreviews.authorization.k8s.io", "shop", kinds.OnHub},
		{"widgets.example.io", "shop", kinds.ByName},
	} {
		if got := kinds.InNamespace(schema.ParseGroupResource(test.resource), test.namespace); got != test.want {
			t.Errorf("%s in %s: got %v, want %v", test.resource, test.namespace, got, test.want)
		}
	}
}
