package replicate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestCopyOfSource tests that a copy as written has the digest of its source, and that relevant changes alter it.
func TestCopyOfSource(t *testing.T) {
	clusterRule, namespaceRule := ruleFor(t, clusters), ruleFor(t, namespaces)
	const text = `
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata:
  name: a
  uid: the-uid
  resourceVersion: "7"
  generation: 3
  creationTimestamp: "2026-01-02T03:04:05Z"
  labels: {tier: gold}
  annotations:
    note: hello
    kubectl.kubernetes.io/last-applied-configuration: "{}"
    cellplane.io/copied-from-hub: of-a-former-life
  finalizers: [karmada.io/cluster-controller]
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: o, uid: u}]
  managedFields: [{manager: somebody}]
spec: {syncMode: Push}
status: {kubernetesVersion: v1}
`
	source, err := newSource(clusterRule, manifest(t, text))
	if err != nil {
		t.Fatal(err)
	}
	want := manifest(t, `
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata:
  name: a
  labels: {tier: gold}
  annotations: {note: hello, cellplane.io/copied-from-hub: the-uid, cellplane.io/source-generation: "3", cellplane.io/source-created: "2026-01-02T03:04:05Z"}
spec: {syncMode: Push}
`)
	if diff := cmp.Diff(want.Object, source.Body); diff != "" {
		t.Errorf("the copy differs (-want +got):\n%s", diff)
	}
	for _, test := range []struct {
		name         string
		rule         *Rule
		change       func(object map[string]any)
		same, status bool // whether the digests of content and status are the source's
	}{
		{name: "as written", rule: clusterRule, change: func(map[string]any) {}, same: true, status: true},
		{name: "what the API server adds", rule: clusterRule, change: set("9", "metadata", "resourceVersion"), same: true, status: true},
		{name: "a finalizer of the cell", rule: clusterRule, change: set([]any{"f"}, "metadata", "finalizers"), same: true, status: true},
		{name: "label", rule: clusterRule, change: set("silver", "metadata", "labels", "tier"), status: true},
		{name: "annotation", rule: clusterRule, change: set("x", "metadata", "annotations", "more"), status: true},
		{name: "source", rule: clusterRule, change: set("x", "metadata", "annotations", SourceUIDAnnotation), status: true},
		{name: "spec", rule: clusterRule, change: set("Pull", "spec", "syncMode"), status: true},
		{name: "status", rule: clusterRule, change: set("v2", "status", "kubernetesVersion"), same: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := (&unstructured.Unstructured{Object: source.Body}).DeepCopy()
			object.Object["status"] = map[string]any{"kubernetesVersion": "v1"}
			test.change(object.Object)
			copied, err := newCopy(test.rule, object)
			if err != nil {
				t.Fatal(err)
			}
			if same := copied.digest == source.digest; same != test.same {
				t.Errorf("same content: %t", same)
			}
			if same := copied.statusDigest == source.statusDigest; same != test.status {
				t.Errorf("same status: %t", same)
			}
		})
	}
	namespace, err := newSource(namespaceRule, manifest(t, `{apiVersion: v1, kind: Namespace, metadata: {name: n, uid: u}, spec: {finalizers: [kubernetes]}, status: {phase: Active}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, has := namespace.Body["spec"]; has || namespace.Status != nil {
		t.Errorf("more than metadata is copied of a namespace: %v", namespace.Body)
	}
}

func ruleFor(t *testing.T, resource schema.GroupVersionResource) *Rule {
	t.Helper()
	for _, rule := range Rules() {
		if rule.Resource == resource {
			return rule
		}
	}
	t.Fatalf("there is no rule for %s", resource)
	return nil
}

func set(value any, path ...string) func(map[string]any) {
	return func(object map[string]any) {
		if err := unstructured.SetNestedField(object, value, path...); err != nil {
			panic(err)
		}
	}
}

// TestStatusOfNothing tests that an empty status and a missing one are the same.
func TestStatusOfNothing(t *testing.T) {
	for _, status := range []any{nil, map[string]any{}} {
		if got, err := digestOfStatus(status); got != "" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
}
