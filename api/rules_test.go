package api_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/api/crds"
)

// rule is a case of testdata/rules.yaml.
type rule struct {
	// Name describes the case.
	Name string `json:"name"`
	// Example is the file the case starts from, and Document the position in it.
	Example  string `json:"example"`
	Document int    `json:"document,omitempty"`
	// From is a JSON patch that produces the initial object.
	From json.RawMessage `json:"from,omitempty"`
	// Change is a JSON patch that produces the object to send: as an update of the initial object if Update is set,
	// otherwise as a new one.
	Change json.RawMessage `json:"change"`
	Update bool            `json:"update,omitempty"`
	// Wants are parts of the error: the field and the problem. Without any, the server must accept.
	Wants []string `json:"wants,omitempty"`
}

func rules(t *testing.T) []rule {
	t.Helper()
	content, err := os.ReadFile("testdata/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rules []rule
	if err := yaml.UnmarshalStrict(content, &rules); err != nil {
		t.Fatal(err)
	}
	return rules
}

// TestEveryRuleHasACase requires a case for every validation message in the definitions. Kinds share types, so the case
// may be of another kind.
func TestEveryRuleHasACase(t *testing.T) {
	cases := rules(t)
	for _, definition := range crds.All() {
		for _, version := range definition.Spec.Versions {
			for _, message := range messages(version.Schema.OpenAPIV3Schema) {
				if !slices.ContainsFunc(cases, func(c rule) bool {
					return slices.ContainsFunc(c.Wants, func(want string) bool { return strings.Contains(message, want) })
				}) {
					t.Errorf("no case triggers the message of %s: %q", definition.Spec.Names.Kind, message)
				}
			}
		}
	}
}

// messages returns the validation messages of a schema.
func messages(schema *apiextensionsv1.JSONSchemaProps) []string {
	if schema == nil {
		return nil
	}
	var all []string
	for _, rule := range schema.XValidations {
		all = append(all, rule.Message)
	}
	for _, property := range schema.Properties {
		all = append(all, messages(&property)...)
	}
	if schema.Items != nil {
		all = append(all, messages(schema.Items.Schema)...)
	}
	if schema.AdditionalProperties != nil {
		all = append(all, messages(schema.AdditionalProperties.Schema)...)
	}
	return all
}

func testRules(t *testing.T, s *server) {
	documents := examples(t)
	for _, rule := range rules(t) {
		t.Run(rule.Example+"/"+rule.Name, func(t *testing.T) {
			if rule.Document >= len(documents[rule.Example]) {
				t.Fatalf("there is no document %d in %s", rule.Document, rule.Example)
			}
			before := patched(t, documents[rule.Example][rule.Document], rule.From)
			after := patched(t, before, rule.Change)
			if equality.Semantic.DeepEqual(before, after) {
				t.Fatal("the case changes nothing")
			}
			check(t, rule, ask(t, s, rule.Update, before, after))
		})
	}
}

// ask sends the object without keeping anything after the case.
func ask(t *testing.T, s *server, update bool, before, after *unstructured.Unstructured) error {
	t.Helper()
	client, _, object := s.place(t, after)
	dryRun := []string{metav1.DryRunAll}
	if !update {
		_, err := client.Create(t.Context(), object, metav1.CreateOptions{DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict})
		return err
	}
	object.SetResourceVersion(s.create(t, before).GetResourceVersion())
	_, err := client.Update(t.Context(), object, metav1.UpdateOptions{DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict})
	return err
}

func check(t *testing.T, rule rule, err error) {
	t.Helper()
	if len(rule.Wants) == 0 {
		if err != nil {
			t.Errorf("rejected: %v", err)
		}
		return
	}
	if !apierrors.IsInvalid(err) {
		t.Fatalf("got %v, want an Invalid error", err)
	}
	for _, want := range rule.Wants {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %q: %v", want, err)
		}
	}
}

func patched(t *testing.T, object *unstructured.Unstructured, patch json.RawMessage) *unstructured.Unstructured {
	t.Helper()
	if len(patch) == 0 {
		return object
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	content, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	content, err = operations.Apply(content)
	if err != nil {
		t.Fatal(err)
	}
	result := &unstructured.Unstructured{}
	if err := result.UnmarshalJSON(content); err != nil {
		t.Fatal(err)
	}
	return result
}
