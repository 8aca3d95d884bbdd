package api_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/cellplane/cellplane/api/crds"
)

// TestStricterIsDocumented compares the constraints of Karmada's kinds with those that Karmada has in schemas and webhooks, which are in
// testdata/karmada-validation.txt. The table "Stricter than Karmada" in docs/api.md has the fields with others. Bounds of lists and lengths are
// documented elsewhere.
func TestStricterIsDocumented(t *testing.T) {
	content, err := os.ReadFile("testdata/karmada-validation.txt")
	if err != nil {
		t.Fatal(err)
	}
	karmadas := map[string]bool{} // constraint → whether ours has it
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			karmadas[line] = false
		}
	}
	var stricter []string
	for _, definition := range crds.All() {
		if definition.Spec.Group == "cellplane.io" {
			continue
		}
		for _, version := range definition.Spec.Versions {
			for _, one := range constraints(definition.Spec.Names.Kind, nil, version.Schema.OpenAPIV3Schema) {
				if _, known := karmadas[one]; known {
					karmadas[one] = true
				} else {
					field, _, _ := strings.Cut(one, " ")
					stricter = append(stricter, field)
					t.Logf("stricter: %s", one)
				}
			}
		}
	}
	for one, has := range karmadas {
		if !has {
			t.Errorf("testdata/karmada-validation.txt: nothing has the constraint %q", one)
		}
	}
	slices.Sort(stricter)
	stricter = slices.Compact(stricter)

	page, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| stricter |")
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) == 4 {
			for _, name := range regexp.MustCompile("`([\\w.]+)`").FindAllStringSubmatch(cells[1], -1) {
				documented = append(documented, name[1])
			}
		}
	}
	slices.Sort(documented)
	if !slices.Equal(documented, stricter) {
		t.Errorf("docs/api.md says that these are stricter than in Karmada:\n%s\nthese are:\n%s", strings.Join(documented, "\n"), strings.Join(stricter, "\n"))
	}
}

// kubernetes are the properties whose types are those of Kubernetes, with its validation.
var kubernetes = regexp.MustCompile(`^(conditions|labelSelector|metrics|currentMetrics|behavior|nodeClaim|loadBalancer|scaleTargetRef|clientConfig|tls|http|defaultBackend|metadata)$`)

// constraints returns the constraints of a schema and its properties, as "field constraint". A field is named by its last two properties, because
// kinds share types.
func constraints(kind string, path []string, schema *apiextensionsv1.JSONSchemaProps) []string {
	if schema == nil || len(path) > 0 && kubernetes.MatchString(path[len(path)-1]) {
		return nil
	}
	field := kind
	if len(path) > 0 {
		field = strings.Join(append([]string{kind}, path...)[max(1, len(path))-1:], ".")
	}
	var all []string
	add := func(of, format string, args ...any) { all = append(all, of+" "+fmt.Sprintf(format, args...)) }
	for _, name := range schema.Required {
		add(strings.Join(append(slices.Clone(path), name)[max(0, len(path)-1):], "."), "required")
	}
	if len(schema.Enum) > 0 {
		var values []string
		for _, value := range schema.Enum {
			values = append(values, strings.Trim(string(value.Raw), `"`))
		}
		add(field, "one of %s", strings.Join(values, ", "))
	}
	if schema.Pattern != "" && !schema.XIntOrString {
		add(field, "matches %s", schema.Pattern)
	}
	for name, bound := range map[string]*int64{"shortest": schema.MinLength, "fewest": schema.MinItems, "fewest keys": schema.MinProperties} {
		if bound != nil {
			add(field, "%s %d", name, *bound)
		}
	}
	for name, bound := range map[string]*float64{"least": schema.Minimum, "most": schema.Maximum} {
		if bound != nil {
			add(field, "%s %v", name, *bound)
		}
	}
	if len(schema.XListMapKeys) > 0 {
		add(field, "unique by %s", strings.Join(schema.XListMapKeys, ", "))
	}
	for _, rule := range schema.XValidations {
		add(field, "rule: %s", rule.Message)
	}
	for name, property := range schema.Properties {
		all = append(all, constraints(kind, append(slices.Clone(path), name), &property)...)
	}
	if schema.Items != nil {
		all = append(all, constraints(kind, path, schema.Items.Schema)...)
	}
	if schema.AdditionalProperties != nil {
		all = append(all, constraints(kind, path, schema.AdditionalProperties.Schema)...)
	}
	return all
}
