package cell

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/api/names"
)

// P16: kinds of the control plane are not templates; cluster-scoped kinds only if asked for.
func TestTemplateKinds(t *testing.T) {
	for _, test := range []struct {
		group, kind, name string
		namespaced, hub   bool
		verbs             []string
		want              bool
	}{
		{"apps", "Deployment", "deployments", true, false, nil, true},
		{"apps", "Deployment", "deployments/status", true, false, nil, false},
		{"", "Event", "events", true, false, nil, false},
		{"work.karmada.io", "Work", "works", true, false, nil, false},
		{"policy.karmada.io", "PropagationPolicy", "propagationpolicies", true, false, nil, false},
		{"cluster.karmada.io", "Cluster", "clusters", false, true, nil, false},
		{"rbac.authorization.k8s.io", "ClusterRole", "clusterroles", false, false, nil, false},
		{"rbac.authorization.k8s.io", "ClusterRole", "clusterroles", false, true, nil, true},
		{"example.com", "Snapshot", "snapshots", true, false, []string{"list"}, false},
		{"networking.karmada.io", "MultiClusterIngress", "multiclusteringresses", true, false, nil, true},
	} {
		templates := newTemplates(nil, Options{ClusterScoped: test.hub})
		verbs := test.verbs
		if verbs == nil {
			verbs = []string{"get", "list", "watch", "create", "delete"}
		}
		resource := &metav1.APIResource{Name: test.name, Kind: test.kind, Namespaced: test.namespaced, Verbs: verbs}
		if got := templates.templateKind(schema.GroupVersion{Group: test.group, Version: "v1"}, resource) != nil; got != test.want {
			t.Errorf("%s of %q (hub: %t) is a template: %t", test.name, test.group, test.hub, got)
		}
	}
}

// Our labels on a template, and its status, do not count as changes by its user.
func TestUserDigest(t *testing.T) {
	template := func(change func(*unstructured.Unstructured)) uint64 {
		obj := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"k": "v"},
			"metadata": map[string]any{"name": "cm", "labels": map[string]any{"a": "b"}, "annotations": map[string]any{"c": "d"}},
		}}
		change(obj)
		return userDigest(obj)
	}
	same := template(func(*unstructured.Unstructured) {})
	for name, change := range map[string]func(*unstructured.Unstructured){
		"claim": func(o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{"a": "b", names.PropagationPolicyPermanentIDLabel: "x"})
		},
		"status": func(o *unstructured.Unstructured) { o.Object["status"] = map[string]any{"x": "y"} },
		"version": func(o *unstructured.Unstructured) {
			o.SetResourceVersion("7")
			o.SetGeneration(3)
		},
	} {
		if template(change) != same {
			t.Errorf("a change of the %s counts as a change by the user", name)
		}
	}
	for name, change := range map[string]func(*unstructured.Unstructured){
		"label":      func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"a": "c"}) },
		"annotation": func(o *unstructured.Unstructured) { o.SetAnnotations(nil) },
		"data":       func(o *unstructured.Unstructured) { o.Object["data"] = map[string]any{"k": "w"} },
	} {
		if template(change) == same {
			t.Errorf("a change of the %s is ignored", name)
		}
	}
}
