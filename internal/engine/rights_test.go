package engine_test

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// rolePolicy propagates the objects of a kind of RBAC to member1.
func rolePolicy(ns, kind string) *policyv1alpha1.PropagationPolicy {
	p := policy(ns, "p", nil, inMembers("member1"), func(spec *policyv1alpha1.PropagationSpec) {
		spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind, Namespace: ns}}
	})
	p.Labels = map[string]string{names.PropagationPolicyPermanentIDLabel: ns} // set by the hub manager otherwise
	return p
}

func hubNamespace(t *testing.T) string {
	t.Helper()
	ns := namespaceRef("")
	ns.GenerateName = "t-"
	createIn(t, hub, ns)
	return ns.Name
}

// O11: an override of a tenant does not change what a Role grants in a member, and does not keep the Role from being reduced there.
func TestOverridesGrantNothing(t *testing.T) {
	t.Parallel()
	ns := hubNamespace(t)
	ref := func() *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader"}}
	}
	verbs := func(role *rbacv1.Role) string { return strings.Join(role.Rules[0].Verbs, ",") }
	role := ref()
	role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}}}
	override := &policyv1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "escalate"}}
	override.Spec.OverrideRules = []policyv1alpha1.RuleWithCluster{{Overriders: policyv1alpha1.Overriders{Plaintext: []policyv1alpha1.PlaintextOverrider{{
		Path: "/rules", Operator: policyv1alpha1.OverriderOpReplace, Value: apiextensionsv1.JSON{Raw: []byte(`[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]`)},
	}}}}}
	createIn(t, hub, override, rolePolicy(ns, "Role"), role)
	event(t, hub, ns, "reader", names.EventApplyOverridePolicyFailed)
	until(t, "the Role is there as the template has it", members["member1"], ref(), func(r *rbacv1.Role) bool { return verbs(r) == "get,list" })
	until(t, "the binding has the reason", hub, bindingRef(ns, "reader-role"), func(b *workv1alpha2.ResourceBinding) bool {
		applied := meta.FindStatusCondition(b.Status.Conditions, names.BindingFullyApplied)
		return applied != nil && applied.Status == metav1.ConditionFalse && strings.Contains(applied.Message, "must not change what a Role grants")
	})

	edit(t, hub, ref(), func(r *rbacv1.Role) { r.Rules[0].Verbs = []string{"get"} })
	until(t, "the Role is reduced", members["member1"], ref(), func(r *rbacv1.Role) bool { return verbs(r) == "get" })

	cop := &policyv1alpha1.ClusterOverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: ns, Annotations: map[string]string{names.MayChangeRightsAnnotation: "true"}}}
	cop.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role", Namespace: ns}}
	cop.Spec.OverrideRules = []policyv1alpha1.RuleWithCluster{{Overriders: policyv1alpha1.Overriders{Plaintext: []policyv1alpha1.PlaintextOverrider{{
		Path: "/rules/0/verbs/0", Operator: policyv1alpha1.OverriderOpReplace, Value: apiextensionsv1.JSON{Raw: []byte(`"watch"`)},
	}}}}}
	createIn(t, hub, cop)
	until(t, "an administrator's override applies", members["member1"], ref(), func(r *rbacv1.Role) bool { return verbs(r) == "watch" })
}

// O11: an interpreter does not change whom a RoleBinding grants a role.
func TestInterpretersGrantNothing(t *testing.T) {
	t.Parallel()
	ns := hubNamespace(t)
	ref := func() *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "readers"}}
	}
	subject := func(name string) []rbacv1.Subject {
		return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	}
	binding := ref()
	binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"}
	binding.Subjects = subject("jane")
	createIn(t, hub, rolePolicy(ns, "RoleBinding"), binding)
	until(t, "it is there", members["member1"], ref(), anything[*rbacv1.RoleBinding])

	custom := &configv1alpha1.ResourceInterpreterCustomization{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	custom.Spec.Target = configv1alpha1.CustomizationTarget{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"}
	custom.Spec.Customizations.Retention = &configv1alpha1.LocalValueRetention{LuaScript: `
function Retain(desired, observed)
  if desired.metadata.namespace == "` + ns + `" then desired.subjects[1].name = "mallory" end
  return desired
end`}
	createIn(t, hub, custom)
	t.Cleanup(func() { _ = hub.Delete(context.Background(), custom) })
	edit(t, hub, ref(), func(b *rbacv1.RoleBinding) { b.Subjects = subject("john") })
	until(t, "the binding has the reason", hub, bindingRef(ns, "readers-rolebinding"), func(b *workv1alpha2.ResourceBinding) bool {
		return len(b.Status.AggregatedStatus) == 1 && strings.Contains(b.Status.AggregatedStatus[0].AppliedMessage, "changes subjects")
	})
	if now := until(t, "it is there", members["member1"], ref(), anything[*rbacv1.RoleBinding]); now.Subjects[0].Name != "jane" {
		t.Errorf("the role is granted to %s", now.Subjects[0].Name)
	}
	if err := hub.Delete(t.Context(), custom); err != nil {
		t.Fatal(err)
	}
	until(t, "it is updated", members["member1"], ref(), func(b *rbacv1.RoleBinding) bool { return b.Subjects[0].Name == "john" })
}
