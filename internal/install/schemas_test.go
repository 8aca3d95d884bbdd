package install

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// older are the versions of Kubernetes whose schemas the objects of the chart have to satisfy, besides that of the API server in
// TestObjectsAreValid. Their client-go has them. The sums are those of go.sum files.
var older = map[string]string{
	"v0.34.13": "h1:47Nf1YByDhpYtyOB9zd56FB9bEDxsozH1ic3VyU7zV0=",
	"v0.35.10": "h1:HXF+042qTnXFFISMiuMHiM5yN2lVonVQQAkpIWxSGPk=",
}

// TestOlderSchemas finds fields that older versions of Kubernetes do not know, and values of other types.
func TestOlderSchemas(t *testing.T) {
	for version, sum := range older {
		t.Run(version, func(t *testing.T) {
			schema := schemaOf(t, version, sum)
			checked := 0
			for name, text := range samples {
				for _, object := range rendered(t, Release{Name: "cp", Namespace: "fed", Values: values(t, text)}) {
					if ofOperator(object) || object.GetKind() == "CustomResourceDefinition" { // client-go has no schema of definitions
						continue
					}
					if err := satisfies(schema, object); err != nil {
						t.Errorf("%s: %s %s: %v", name, object.GetKind(), object.GetName(), err)
					}
					checked++
				}
			}
			if checked < 100 {
				t.Errorf("only %d objects were checked", checked)
			}
			wrong := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "d"},
				"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"unknown": "field"}}},
			}}
			if err := satisfies(schema, wrong); err == nil || !strings.Contains(err.Error(), "unknown") {
				t.Errorf("an unknown field: %v", err)
			}
		})
	}
}

// satisfies checks an object of a kind that Kubernetes has.
func satisfies(schema *typed.Parser, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	group, _, _ := strings.Cut(kind.Group, ".")
	if group == "" {
		group = "core"
	}
	name := fmt.Sprintf("io.k8s.api.%s.%s.%s", group, kind.Version, kind.Kind)
	found := schema.Type(name)
	if !found.IsValid() {
		return fmt.Errorf("there is no kind %s", name)
	}
	_, err := found.FromUnstructured(object.Object)
	return err
}

// schemaOf returns the schemas of all kinds of a version.
func schemaOf(t *testing.T, version, sum string) *typed.Parser {
	t.Helper()
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "k8s.io/client-go@"+version)
	download.Dir = t.TempDir() // outside of this module
	output, err := download.Output()
	if err != nil {
		t.Fatalf("downloading client-go %s: %v: %s", version, err, output)
	}
	var module struct{ Dir, Sum string }
	if err := json.Unmarshal(output, &module); err != nil {
		t.Fatal(err)
	}
	if module.Sum != sum {
		t.Fatalf("client-go %s has the sum %s, want %s", version, module.Sum, sum)
	}
	source, err := os.ReadFile(filepath.Join(module.Dir, "applyconfigurations", "internal", "internal.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(source), "typed.YAMLObject(`")
	text, _, found := strings.Cut(text, "`)")
	if !found {
		t.Fatalf("client-go %s has its schemas elsewhere", version)
	}
	parser, err := typed.NewParser(typed.YAMLObject(text))
	if err != nil {
		t.Fatal(err)
	}
	return parser
}
