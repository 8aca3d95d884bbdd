package override_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/override"
)

var member = &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "member"}}

// object reads a manifest the way it arrives from an API server.
func object(t testing.TB, manifest string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return obj
}

func spec(t testing.TB, text string) policyv1alpha1.OverrideSpec {
	t.Helper()
	var spec policyv1alpha1.OverrideSpec
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

func clusterPolicy(t testing.TB, name, text string) *override.Policy {
	t.Helper()
	return override.CompileCluster(&policyv1alpha1.ClusterOverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec(t, text)})
}

func policy(t testing.TB, namespace, name, text string) *override.Policy {
	t.Helper()
	return override.Compile(&policyv1alpha1.OverridePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec(t, text),
	})
}

// appendLetter is a policy spec that appends its letter to the data of a ConfigMap, so that the order of policies can
// be read from the result.
func appendLetter(letter, selectors string) string {
	return fmt.Sprintf("%s\noverrideRules: [{overriders: {plaintext: [{path: /data/-, operator: add, value: %q}]}}]", selectors, letter)
}

func letters(t *testing.T, obj *unstructured.Unstructured) string {
	t.Helper()
	list, _, err := unstructured.NestedStringSlice(obj.Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, "")
}

const letterBox = `
apiVersion: v1
kind: Letters
metadata: {name: box, namespace: ns, labels: {app: web}}
data: []
`

const (
	byName  = "resourceSelectors: [{apiVersion: v1, kind: Letters, name: box}]"
	byLabel = "resourceSelectors: [{apiVersion: v1, kind: Letters, labelSelector: {matchLabels: {app: web}}}]"
	byKind  = "resourceSelectors: [{apiVersion: v1, kind: Letters}]"
)

// O1: cluster policies first; within each scope the narrower selector later, then names; rules in order.
func TestOrder(t *testing.T) {
	set := override.NewSet(
		policy(t, "ns", "x-name", appendLetter("6", byName)),
		policy(t, "ns", "a-label", appendLetter("5", byLabel)),
		policy(t, "ns", "z-all", appendLetter("4", "")),
		clusterPolicy(t, "c-name", appendLetter("3", byName)),
		clusterPolicy(t, "b-kind", appendLetter("2", byKind)),
		clusterPolicy(t, "a-kind", byKind+`
overrideRules:
- overriders: {plaintext: [{path: /data/-, operator: add, value: "0"}]}
- overriders: {plaintext: [{path: /data/-, operator: add, value: "1"}]}`),
		// The narrowest of several matching selectors decides.
		clusterPolicy(t, "a-both", appendLetter("n", byKind[:len(byKind)-1]+", {apiVersion: v1, kind: Letters, name: box}]")),
	)
	result, trace, err := set.Apply(object(t, letterBox), member)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := letters(t, result), "012n3456"; got != want {
		t.Errorf("applied in order %s, want %s", got, want)
	}
	want := []override.Reference{
		{Name: "a-kind"}, {Name: "b-kind"}, {Name: "a-both"}, {Name: "c-name"},
		{Namespace: "ns", Name: "z-all"}, {Namespace: "ns", Name: "a-label"}, {Namespace: "ns", Name: "x-name"},
	}
	if diff := cmp.Diff(want, trace.Policies()); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}

// O1: within a rule plaintext is applied last, so that it can set what other overriders cannot.
func TestPlaintextComesLast(t *testing.T) {
	set := override.NewSet(clusterPolicy(t, "p", `
overrideRules:
- overriders:
    plaintext: [{path: /metadata/labels/env, operator: replace, value: plain}]
    labelsOverrider: [{operator: add, value: {env: label}}]`))
	result, _, err := set.Apply(object(t, letterBox), member)
	if err != nil {
		t.Fatal(err)
	}
	if got := result.GetLabels()["env"]; got != "plain" {
		t.Errorf("label env is %q, want the plaintext overrider to win", got)
	}
}

// O2: what a policy selects.
func TestSelection(t *testing.T) {
	const namespaced = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm, namespace: ns, labels: {app: web}}"
	const clusterScoped = "apiVersion: v1\nkind: Namespace\nmetadata: {name: ns}"
	selectors := func(text string) string { return "resourceSelectors: [" + text + "]" }

	for name, tt := range map[string]struct {
		namespace string // of the policy
		spec      string
		object    string
		want      bool
	}{
		"nil selectors select all":                {"", "", namespaced, true},
		"nil selectors select cluster-scoped":     {"", "", clusterScoped, true},
		"nil selectors of own namespace":          {"ns", "", namespaced, true},
		"nil selectors of another namespace":      {"other", "", namespaced, false},
		"namespaced policy, cluster-scoped":       {"ns", "", clusterScoped, false},
		"kind":                                    {"", selectors("{apiVersion: v1, kind: ConfigMap}"), namespaced, true},
		"other kind":                              {"", selectors("{apiVersion: v1, kind: Secret}"), namespaced, false},
		"other group":                             {"", selectors("{apiVersion: x/v1, kind: ConfigMap}"), namespaced, false},
		"name":                                    {"", selectors("{apiVersion: v1, kind: ConfigMap, name: cm}"), namespaced, true},
		"other name":                              {"", selectors("{apiVersion: v1, kind: ConfigMap, name: x}"), namespaced, false},
		"name beats labels":                       {"", selectors("{apiVersion: v1, kind: ConfigMap, name: cm, labelSelector: {matchLabels: {app: x}}}"), namespaced, true},
		"namespace":                               {"", selectors("{apiVersion: v1, kind: ConfigMap, namespace: ns}"), namespaced, true},
		"namespace and name":                      {"", selectors("{apiVersion: v1, kind: ConfigMap, namespace: ns, name: cm}"), namespaced, true},
		"other namespace":                         {"", selectors("{apiVersion: v1, kind: ConfigMap, namespace: x}"), namespaced, false},
		"labels":                                  {"", selectors("{apiVersion: v1, kind: ConfigMap, labelSelector: {matchExpressions: [{key: app, operator: In, values: [web]}]}}"), namespaced, true},
		"other labels":                            {"", selectors("{apiVersion: v1, kind: ConfigMap, labelSelector: {matchLabels: {app: x}}}"), namespaced, false},
		"label does not exist":                    {"", selectors("{apiVersion: v1, kind: ConfigMap, labelSelector: {matchExpressions: [{key: x, operator: DoesNotExist}]}}"), namespaced, true},
		"any of several":                          {"", selectors("{apiVersion: v1, kind: Secret}, {apiVersion: v1, kind: ConfigMap}"), namespaced, true},
		"namespaced policy defaults to its own":   {"ns", selectors("{apiVersion: v1, kind: ConfigMap}"), namespaced, true},
		"namespaced policy cannot reach others":   {"x", selectors("{apiVersion: v1, kind: ConfigMap, namespace: ns}"), namespaced, false},
		"namespaced policy naming another":        {"ns", selectors("{apiVersion: v1, kind: ConfigMap, namespace: x}"), namespaced, false},
		"namespaced policy elsewhere":             {"x", selectors("{apiVersion: v1, kind: ConfigMap}"), namespaced, false},
		"O10: cluster policy selects a namespace": {"", selectors("{apiVersion: v1, kind: Namespace}"), clusterScoped, true},
		"O10: a namespace by name":                {"", selectors("{apiVersion: v1, kind: Namespace, name: ns}"), clusterScoped, true},
	} {
		t.Run(name, func(t *testing.T) {
			text := tt.spec + "\noverrideRules: [{overriders: {annotationsOverrider: [{operator: add, value: {seen: 'yes'}}]}}]"
			compiled := clusterPolicy(t, "p", text)
			if tt.namespace != "" {
				compiled = policy(t, tt.namespace, "p", text)
			}
			set, obj := override.NewSet(compiled), object(t, tt.object)

			result, trace, err := set.Apply(obj, member)
			if err != nil {
				t.Fatal(err)
			}
			if got := result.GetAnnotations()["seen"] == "yes"; got != tt.want {
				t.Errorf("applied: %v, want %v", got, tt.want)
			}
			if trace.Empty() == tt.want {
				t.Errorf("trace empty: %v, want %v", trace.Empty(), !tt.want)
			}
			// O9: the set and the policy agree about what is selected.
			if got := compiled.Selects(obj); got != tt.want {
				t.Errorf("Selects() = %v, want %v", got, tt.want)
			}
			if got := len(set.Selecting(obj)) == 1; got != tt.want {
				t.Errorf("Selecting() = %v", set.Selecting(obj))
			}
			if !tt.want && result != obj {
				t.Error("an object without overrides was copied")
			}
		})
	}
	var none *override.Policy
	if none.Selects(object(t, namespaced)) {
		t.Error("the nil policy selects an object")
	}
}

// O2: target clusters, in rules and in the deprecated form.
func TestTargetCluster(t *testing.T) {
	set := override.NewSet(
		clusterPolicy(t, "a", `
overrideRules:
- targetCluster: {clusterNames: [member]}
  overriders: {plaintext: [{path: /data/-, operator: add, value: m}]}
- targetCluster: {clusterNames: [other]}
  overriders: {plaintext: [{path: /data/-, operator: add, value: o}]}
- overriders: {plaintext: [{path: /data/-, operator: add, value: all}]}`),
		clusterPolicy(t, "b", `
targetCluster: {labelSelector: {matchLabels: {env: prod}}}
overriders: {plaintext: [{path: /data/-, operator: add, value: prod}]}`),
		clusterPolicy(t, "c", `overriders: {plaintext: [{path: /data/-, operator: add, value: old}]}`),
	)
	prod := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"env": "prod"}}}
	for want, cluster := range map[string]*clusterv1alpha1.Cluster{"mallold": member, "allprodold": prod} {
		result, _, err := set.Apply(object(t, letterBox), cluster)
		if err != nil {
			t.Fatal(err)
		}
		if got := letters(t, result); got != want {
			t.Errorf("cluster %s got %q, want %q", cluster.Name, got, want)
		}
	}
}

// O1: an OverridePolicy sees the labels that ClusterOverridePolicies left.
func TestNamespacedPoliciesSeeClusterOverrides(t *testing.T) {
	set := override.NewSet(
		clusterPolicy(t, "label", `overrideRules: [{overriders: {labelsOverrider: [{operator: replace, value: {app: changed}}]}}]`),
		policy(t, "ns", "second", appendLetter("x", strings.ReplaceAll(byLabel, "web", "changed"))),
	)
	result, _, err := set.Apply(object(t, letterBox), member)
	if err != nil {
		t.Fatal(err)
	}
	if got := letters(t, result); got != "x" {
		t.Errorf("got %q, want the second policy applied", got)
	}
}

// O8: the annotations are JSON lists of the applied rules, sorted by policy name.
func TestTrace(t *testing.T) {
	set := override.NewSet(
		policy(t, "ns", "b", byName+`
overrideRules: [{overriders: {plaintext: [{path: /data/-, operator: add, value: 2}]}}]`),
		policy(t, "ns", "c", `overriders: {labelsOverrider: [{operator: add, value: {x: "y"}}]}`),
		clusterPolicy(t, "a", `
overrideRules:
- overriders: {argsOverrider: [{containerName: c, operator: add, value: [--v=1]}]}
- targetCluster: {clusterNames: [other]}
  overriders: {}
- overriders: {}`),
	)
	_, trace, err := set.Apply(object(t, letterBox), member)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"policy.karmada.io/applied-overrides": `[{"policyName":"b","overriders":{"plaintext":[{"path":"/data/-","operator":"add","value":2}]}},` +
			`{"policyName":"c","overriders":{"labelsOverrider":[{"operator":"add","value":{"x":"y"}}]}}]`,
		"policy.karmada.io/applied-cluster-overrides": `[{"policyName":"a","overriders":{"argsOverrider":[{"containerName":"c","operator":"add","value":["--v=1"]}]}},` +
			`{"policyName":"a","overriders":{}}]`,
	}
	if diff := cmp.Diff(want, trace.Annotations()); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	for key, text := range trace.Annotations() {
		var list []struct{ PolicyName string }
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Errorf("%s is no JSON list: %v", key, err)
		}
	}
	if _, trace, _ := set.Apply(object(t, "apiVersion: v1\nkind: X\nmetadata: {name: n}"), member); trace.Annotations()["policy.karmada.io/applied-overrides"] != "" {
		t.Error("policies that were not applied are recorded")
	}
}

func TestInputIsNeverChanged(t *testing.T) {
	obj := object(t, deployment)
	before := obj.DeepCopy()
	set := override.NewSet(clusterPolicy(t, "p", `
overrideRules:
- overriders:
    imageOverrider: [{component: Tag, operator: replace, value: v9}]
    argsOverrider: [{containerName: app, operator: remove, value: [-a]}, {containerName: app, operator: add, value: [-z]}]
    commandOverrider: [{containerName: app, operator: add, value: [x]}]
    labelsOverrider: [{operator: remove, value: {app: ""}}]
    annotationsOverrider: [{operator: add, value: {a: b}}]
    plaintext:
    - {path: /spec/template/spec/containers/-, operator: add, value: {name: new, image: new}}
    - {path: /spec/strategy, operator: add, value: {type: Recreate}}
    - {path: /spec/template/spec/containers/0, operator: remove}`))
	first, _, err := set.Apply(obj, member)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Object, obj.Object); diff != "" {
		t.Errorf("the input changed (-before +after):\n%s", diff)
	}
	// Two results must not share anything from the policy either.
	containers, _, _ := unstructured.NestedFieldNoCopy(first.Object, "spec", "template", "spec", "containers")
	for _, container := range containers.([]any) {
		container.(map[string]any)["image"] = "spoiled"
	}
	if err := unstructured.SetNestedField(first.Object, "spoiled", "spec", "strategy", "type"); err != nil {
		t.Fatal(err)
	}
	second, _, err := set.Apply(obj, member)
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := second.MarshalJSON(); strings.Contains(string(text), "spoiled") {
		t.Error("results share memory")
	}
}

func TestErrorsNamePolicyRuleAndPath(t *testing.T) {
	for name, tt := range map[string]struct {
		policy *override.Policy
		want   []string
	}{
		"missing path": {
			clusterPolicy(t, "p", `overrideRules: [{overriders: {}}, {overriders: {plaintext: [{path: /a/b, operator: remove}]}}]`),
			[]string{"ClusterOverridePolicy p", "cluster member", "overrideRules[1].overriders.plaintext[0]", "/a/b"},
		},
		"deprecated form": {
			policy(t, "ns", "q", `overriders: {fieldOverrider: [{fieldPath: /data, json: [{subPath: /x, operator: remove}]}]}`),
			[]string{"OverridePolicy ns/q", "spec.overriders.fieldOverrider[0]", "/data", "string"},
		},
		"kind may not change":      {clusterPolicy(t, "p", plaintext("/kind", "ClusterRole")), []string{"ClusterOverridePolicy p", "kind"}},
		"name may not change":      {clusterPolicy(t, "p", plaintext("/metadata/name", "x")), []string{"metadata.name"}},
		"namespace may not change": {clusterPolicy(t, "p", plaintext("/metadata/namespace", "kube-system")), []string{"metadata.namespace"}},
		"group may not change":     {clusterPolicy(t, "p", plaintext("/apiVersion", "rbac.authorization.k8s.io/v1")), []string{"apiVersion"}},
		"broken target": {
			clusterPolicy(t, "p", `overrideRules: [{targetCluster: {fieldSelector: {matchExpressions: [{key: rack, operator: In, values: [a]}]}}, overriders: {}}]`),
			[]string{"ClusterOverridePolicy p is invalid", "overrideRules[0].targetCluster", "rack"},
		},
		"broken selector": {
			clusterPolicy(t, "p", `resourceSelectors: [{apiVersion: v1, kind: Letters, labelSelector: {matchLabels: {"a b": c}}}]`),
			[]string{"is invalid", "resourceSelectors[0]"},
		},
		"broken pointer": {clusterPolicy(t, "p", plaintext("data", "x")), []string{"overrideRules[0].overriders.plaintext[0]", "slash"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := override.NewSet(tt.policy).Apply(object(t, letterBox), member)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not mention %q", err, want)
				}
			}
		})
	}
}

// An invalid policy must not fail objects that it does not select.
func TestBrokenPolicyFailsOnlyWhatItSelects(t *testing.T) {
	set := override.NewSet(clusterPolicy(t, "p", "resourceSelectors: [{apiVersion: v1, kind: Other}]"+"\n"+plaintext("no-slash", "x")))
	if _, _, err := set.Apply(object(t, letterBox), member); err != nil {
		t.Errorf("an unrelated object failed: %v", err)
	}
	broken := clusterPolicy(t, "p", plaintext("no-slash", "x"))
	if broken.Err() == nil {
		t.Error("Err() does not report that the policy is invalid")
	}
}

func TestVersionMayChange(t *testing.T) {
	obj := object(t, "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: h, namespace: ns}")
	result, _, err := override.NewSet(clusterPolicy(t, "p", plaintext("/apiVersion", "autoscaling/v1"))).Apply(obj, member)
	if err != nil || result.GetAPIVersion() != "autoscaling/v1" {
		t.Errorf("got %v, %v", result, err)
	}
}

func plaintext(path, value string) string {
	return fmt.Sprintf("overrideRules: [{overriders: {plaintext: [{path: %q, operator: replace, value: %q}]}}]", path, value)
}

func TestUnselectedObjectCostsNothing(t *testing.T) {
	policies := []*override.Policy{clusterPolicy(t, "none", `overrideRules: [{targetCluster: {clusterNames: [x]}, overriders: {}}]`)}
	for i := range 1000 {
		policies = append(policies, policy(t, "ns", fmt.Sprint("p", i), fmt.Sprintf("resourceSelectors: [{apiVersion: v1, kind: Letters, name: n%d}]", i)))
	}
	set, obj := override.NewSet(policies...), object(t, letterBox)
	result, trace, err := set.Apply(obj, member)
	if err != nil || result != obj || !trace.Empty() {
		t.Fatalf("got %v, %v, %v, want the object itself", result, trace, err)
	}
	if allocs := testing.AllocsPerRun(100, func() { _, _, _ = set.Apply(obj, member) }); allocs > 2 {
		t.Errorf("an object without overrides costs %v allocations", allocs)
	}
	var none *override.Set
	if result, _, err := none.Apply(obj, member); result != obj || err != nil {
		t.Error("the nil set must override nothing")
	}
}

func BenchmarkApply(b *testing.B) {
	var policies []*override.Policy
	for i := range 5000 {
		policies = append(policies, policy(b, "ns", fmt.Sprint("p", i), fmt.Sprintf("resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: n%d}]", i)))
	}
	policies = append(policies, clusterPolicy(b, "registry", `
resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
overrideRules: [{targetCluster: {clusterNames: [member]}, overriders: {imageOverrider: [{component: Registry, operator: replace, value: mirror.example}], plaintext: [{path: /spec/replicas, operator: replace, value: 5}]}}]`))
	set, obj := override.NewSet(policies...), object(b, deployment)
	other := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	for name, cluster := range map[string]*clusterv1alpha1.Cluster{"overridden": member, "untouched": other} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := set.Apply(obj, cluster); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
