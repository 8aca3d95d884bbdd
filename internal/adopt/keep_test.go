package adopt_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/adopt"
	"github.com/cellplane/cellplane/internal/difference"
	"github.com/cellplane/cellplane/internal/interpreter"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/override"
)

const wanted = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "registry.example/app:1", args: [-a]}]}
`

// What the federation would change back in an object is kept by overrides, and nothing else.
func TestKeep(t *testing.T) {
	interpreters := interpreter.New(interpreter.Options{})
	manifest := merge.Stamp(object(t, wanted), merge.Marks{WorkName: "w"})
	live := manifest.DeepCopy()
	containers, _, err := unstructured.NestedSlice(live.Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	container := containers[0].(map[string]any)
	container["image"], container["imagePullPolicy"] = "registry.example/app:repaired", "Always" // the latter is set by the member alone
	delete(container, "args")
	for path, value := range map[string]any{"replicas": int64(5), "template": map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "web"}}, "spec": map[string]any{"containers": containers},
	}} {
		if err := unstructured.SetNestedField(live.Object, value, "spec", path); err != nil {
			t.Fatal(err)
		}
	}
	live.SetAnnotations(with(live.GetAnnotations(), names.EntryAnnotation, "open"))
	merged, changed, err := merge.Update(live, manifest)
	if err != nil || !changed {
		t.Fatalf("the federation would change nothing: %t, %v", changed, err)
	}
	overriders, fields, err := adopt.Keep(interpreters, manifest, merged, live)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(fields)
	want := []string{"spec.replicas", "spec.template.spec.containers[c].args", "spec.template.spec.containers[c].image"}
	if !slices.Equal(fields, want) {
		t.Errorf("the fields are %q, want %q", fields, want)
	}
	if len(overriders.Plaintext) != 2 || len(overriders.ImageOverrider) != 1 || len(overriders.AnnotationsOverrider) != 0 {
		t.Errorf("the overriders are %+v", overriders)
	}

	// With them, nothing would change.
	policy := &policyv1alpha1.OverridePolicy{Spec: policyv1alpha1.OverrideSpec{OverrideRules: []policyv1alpha1.RuleWithCluster{{Overriders: overriders}}}}
	policy.Namespace = "shop"
	overridden, _, err := override.NewSet(override.Compile(policy)).Apply(object(t, wanted), &clusterv1alpha1.Cluster{})
	if err != nil {
		t.Fatal(err)
	}
	merged, _, err = merge.Update(live, merge.Stamp(overridden, merge.Marks{WorkName: "w"}))
	if err != nil {
		t.Fatal(err)
	}
	if changes := difference.Between(live, merged); len(changes) > 0 {
		t.Errorf("the federation would still change %+v", changes)
	}
}

func with(annotations map[string]string, key, value string) map[string]string {
	annotations[key] = value
	return annotations
}
