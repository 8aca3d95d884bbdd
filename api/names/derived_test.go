package names

import (
	"testing"
)

func TestBindingName(t *testing.T) {
	for _, test := range []struct{ kind, name, want string }{
		{"Deployment", "web", "web-deployment"},
		{"ClusterRole", "system:reader", "system.reader-clusterrole"},
		{"ConfigMap", "kube-root-ca.crt", "kube-root-ca.crt-configmap"},
		{"CloneSet", "RSI-App", "rsi-app-cloneset"},
	} {
		if got := BindingName(test.kind, test.name); got != test.want {
			t.Errorf("BindingName(%q, %q) = %q, want %q", test.kind, test.name, got, test.want)
		}
	}
}

func TestWorkName(t *testing.T) {
	for _, test := range []struct{ kind, namespace, name, want string }{
		{"Deployment", "default", "web", "web-7b7cc5b9ff"},
		{"ConfigMap", "team-a", "app-config", "app-config-844c457596"},
		{"ClusterRole", "", "system:reader", "system.reader-95c867f78"},
		{"CloneSet", "prod", "rsi-app", "rsi-app-7f965db659"},
		{"Namespace", "", "team-a", "team-a-5cc7c7959b"},
	} {
		if got := WorkName(test.kind, test.namespace, test.name); got != test.want {
			t.Errorf("WorkName(%q, %q, %q) = %q, want %q", test.kind, test.namespace, test.name, got, test.want)
		}
	}
}

func TestExecutionNamespace(t *testing.T) {
	if got := ExecutionNamespace("member1"); got != "karmada-es-member1" {
		t.Errorf("ExecutionNamespace(member1) = %q", got)
	}
	for _, test := range []struct {
		namespace, cluster string
		ok, reserved       bool
	}{
		{"karmada-es-member1", "member1", true, true},
		{"karmada-es-es-1", "es-1", true, true},
		{"karmada-es-", "", false, true},
		{"karmada-system", "karmada-system", false, true},
		{"karmada-cluster", "karmada-cluster", false, true},
		{"karmada", "karmada", false, false},
		{"default", "default", false, false},
	} {
		cluster, ok := ClusterFromExecutionNamespace(test.namespace)
		if cluster != test.cluster || ok != test.ok {
			t.Errorf("ClusterFromExecutionNamespace(%q) = %q, %t, want %q, %t", test.namespace, cluster, ok, test.cluster, test.ok)
		}
		if got := IsReservedNamespace(test.namespace); got != test.reserved {
			t.Errorf("IsReservedNamespace(%q) = %t, want %t", test.namespace, got, test.reserved)
		}
	}
}
