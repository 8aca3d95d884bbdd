package adopt_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/internal/adopt"
	"github.com/cellplane/cellplane/internal/difference"
	"github.com/cellplane/cellplane/internal/interpreter"
	"github.com/cellplane/cellplane/internal/merge"
)

// What the federation would change back in an object is lifted into the template, unless the template does not decide about it.
func TestKeepInTemplate(t *testing.T) {
	interpreters := interpreter.New(interpreter.Options{})
	template := object(t, wanted)
	template.SetResourceVersion("7")
	manifest := merge.Stamp(object(t, wanted), merge.Marks{WorkName: "w"})
	live := manifest.DeepCopy()
	containers := []any{map[string]any{"name": "c", "image": "registry.example/app:repaired", "command": []any{"run"}}} // without args, and with a command of its own
	if err := unstructured.SetNestedSlice(live.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	merged, _, err := merge.Update(live, manifest)
	if err != nil {
		t.Fatal(err)
	}
	patch, fields, err := adopt.KeepInTemplate(interpreters, template, manifest, merged, live)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"spec.template.spec.containers[c].args", "spec.template.spec.containers[c].image"}; !slices.Equal(fields, want) {
		t.Errorf("the fields are %q, want %q", fields, want)
	}
	patched := patchedTemplate(t, template, patch)

	// The engine needs a moment to render it. Nothing is left to lift until then, and the fields are still to come.
	again, stillOpen, err := adopt.KeepInTemplate(interpreters, patched, manifest, merged, live)
	if err != nil {
		t.Fatal(err)
	}
	if got := patchedTemplate(t, patched, again); !slices.Equal(stillOpen, fields) || len(difference.Between(patched, got)) > 0 {
		t.Errorf("before it is rendered, %q are still to come and the patch is %s", stillOpen, again)
	}
	if merged, _, err = merge.Update(live, merge.Stamp(patched, merge.Marks{WorkName: "w"})); err != nil {
		t.Fatal(err)
	}
	if changes := difference.Between(live, merged); len(changes) > 0 {
		t.Errorf("the federation would still change %+v", changes)
	}

	// An override has set the image of this cluster.
	other := []any{map[string]any{"name": "c", "image": "registry.example/app:other", "args": []any{"-a"}}}
	if err := unstructured.SetNestedSlice(template.Object, other, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	merged, _, err = merge.Update(live, manifest)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := adopt.KeepInTemplate(interpreters, template, manifest, merged, live); err == nil || !strings.Contains(err.Error(), "containers[c].image is not the template's") {
		t.Errorf("a field of an override is answered with %v", err)
	}

	// An override has put a container before that of the template.
	template = object(t, wanted)
	sidecar := map[string]any{"name": "sidecar", "image": "registry.example/app:1"}
	for _, obj := range []*unstructured.Unstructured{manifest, live} {
		containers, _, err := unstructured.NestedSlice(obj.Object, "spec", "template", "spec", "containers")
		if err != nil {
			t.Fatal(err)
		}
		if err := unstructured.SetNestedSlice(obj.Object, append([]any{maps.Clone(sidecar)}, containers...), "spec", "template", "spec", "containers"); err != nil {
			t.Fatal(err)
		}
		sidecar["image"] = "registry.example/app:sidecar" // repaired in the member
	}
	if merged, _, err = merge.Update(live, manifest); err != nil {
		t.Fatal(err)
	}
	if patch, _, err := adopt.KeepInTemplate(interpreters, template, manifest, merged, live); err == nil || !strings.Contains(err.Error(), "containers[sidecar].image is not the template's") {
		t.Errorf("a container of an override is answered with %v and %s", err, patch)
	}
}

func patchedTemplate(t *testing.T, template *unstructured.Unstructured, operations []byte) *unstructured.Unstructured {
	t.Helper()
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := template.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = patch.Apply(raw); err != nil {
		t.Fatalf("applying %s: %v", operations, err)
	}
	patched := &unstructured.Unstructured{}
	if err := patched.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return patched
}
