package override_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/override"
)

const reader = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: ns, labels: {app: web}}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
`

// everything is a policy that has a Role grant everything.
const everything = `overrideRules: [{overriders: {plaintext: [{path: /rules, operator: replace, value: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]}]}}]`

func verbs(t *testing.T, role *unstructured.Unstructured) []any {
	t.Helper()
	rules, _, err := unstructured.NestedSlice(role.Object, "rules")
	if err != nil || len(rules) != 1 {
		t.Fatalf("got rules %v, error %v; want one", rules, err)
	}
	return rules[0].(map[string]any)["verbs"].([]any)
}

// permitted returns a cluster policy that may change rights.
func permitted(t *testing.T, name, text string) *override.Policy {
	t.Helper()
	return override.CompileCluster(&policyv1alpha1.ClusterOverridePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{names.MayChangeRightsAnnotation: "true"}}, Spec: spec(t, text),
	})
}

// O11: an override does not change what a Role grants.
func TestRightsAreKept(t *testing.T) {
	const change = `overrideRules: [{overriders: {plaintext: [{path: /rules/0/verbs/0, operator: replace, value: "*"}]}}]`
	for name, policies := range map[string][]*override.Policy{
		"OverridePolicy":                  {policy(t, "ns", "p", everything)},
		"in place":                        {policy(t, "ns", "p", change)},
		"ClusterOverridePolicy":           {clusterPolicy(t, "p", everything)},
		"after a permitted one":           {permitted(t, "a", `overrideRules: [{overriders: {plaintext: [{path: /rules/0/verbs/0, operator: replace, value: list}]}}]`), policy(t, "ns", "p", everything)},
		"in the second of several rules":  {policy(t, "ns", "p", everything+"\n"), policy(t, "ns", "q", strings.Replace(everything, "[{overriders", "[{overriders: {}}, {overriders", 1))},
		"OverridePolicy with annotation":  {annotated(t)},
		"by a ClusterOverridePolicy, too": {clusterPolicy(t, "p", change)},
	} {
		t.Run(name, func(t *testing.T) {
			result, trace, err := override.NewSet(policies...).Apply(object(t, reader), member)
			if err == nil || !strings.Contains(err.Error(), "rules") || !strings.Contains(err.Error(), names.MayChangeRightsAnnotation) {
				t.Errorf("got error %v, want one that says what is not allowed, and how to allow it", err)
			}
			if result != nil && verbs(t, result)[0] == "*" {
				t.Error("the Role grants everything")
			}
			for _, reference := range trace.Policies() {
				if reference.Namespace != "" {
					t.Errorf("%s counts as applied", reference)
				}
			}
		})
	}
}

// annotated returns an OverridePolicy that permits itself what only a cluster policy can be permitted.
func annotated(t *testing.T) *override.Policy {
	t.Helper()
	return override.Compile(&policyv1alpha1.OverridePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Annotations: map[string]string{names.MayChangeRightsAnnotation: "true"}}, Spec: spec(t, everything),
	})
}

// O11: a tenant's failing override does not keep a Role from being changed in members: the Role is delivered without it, but with those of
// administrators.
func TestRightsWithoutTheOverridesOfTenants(t *testing.T) {
	reduce := permitted(t, "a", `overrideRules: [{overriders: {plaintext: [{path: /rules/0/verbs/0, operator: replace, value: list}]}}]`)
	for name, text := range map[string]string{"grants": everything, "fails": plaintext("/none/here", "x"), "invalid": `overrideRules: [{targetCluster: {labelSelector: {matchExpressions: [{key: a, operator: Foo}]}}}]`} {
		t.Run(name, func(t *testing.T) {
			result, _, err := override.NewSet(reduce, policy(t, "ns", "p", text)).Apply(object(t, reader), member)
			if err == nil || !strings.Contains(err.Error(), "OverridePolicy ns/p") {
				t.Errorf("got error %v, want one about the OverridePolicy", err)
			}
			if result == nil {
				t.Fatal("the Role is not delivered")
			}
			if diff := cmp.Diff([]any{"list"}, verbs(t, result)); diff != "" {
				t.Errorf("verbs (-want +got):\n%s", diff)
			}
		})
	}
	result, _, err := override.NewSet(policy(t, "ns", "p", plaintext("/none/here", "x"))).Apply(object(t, letterBox), member)
	if err == nil || result != nil {
		t.Errorf("got %v and error %v for an object that grants nothing, want only an error", result, err)
	}
}

// O11: an administrator can permit a ClusterOverridePolicy to change rights. Labels of a Role grant nothing.
func TestRightsMayBeChanged(t *testing.T) {
	result, _, err := override.NewSet(permitted(t, "p", everything),
		policy(t, "ns", "p", `overrideRules: [{overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}]`)).Apply(object(t, reader), member)
	if err != nil {
		t.Fatal(err)
	}
	if got := verbs(t, result)[0]; got != "*" || result.GetLabels()["a"] != "b" {
		t.Errorf("got verb %v and labels %v, want * and a=b", got, result.GetLabels())
	}
}
