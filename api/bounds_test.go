package api_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/cellplane/cellplane/api/crds"
)

// TestBoundsAreDocumented compares the bounds of lists in the schemas of Karmada's kinds with the table in docs/api.md.
func TestBoundsAreDocumented(t *testing.T) {
	var want []string
	for _, definition := range crds.All() {
		if definition.Spec.Group == "cellplane.io" {
			continue
		}
		for _, version := range definition.Spec.Versions {
			want = append(want, bounds("", version.Schema.OpenAPIV3Schema)...)
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)

	page, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	row := regexp.MustCompile(`^\| (\d+) \| (.*) \|$`)
	for line := range strings.Lines(string(page)) {
		if cells := row.FindStringSubmatch(strings.TrimSpace(line)); cells != nil {
			for name := range strings.SplitSeq(cells[2], ", ") {
				got = append(got, strings.Trim(name, "`")+" "+cells[1])
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("docs/api.md documents\n%s\nthe schemas have\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// bounds returns the lists in a schema that have a bound, as "name bound".
func bounds(name string, schema *apiextensionsv1.JSONSchemaProps) []string {
	if schema == nil {
		return nil
	}
	var all []string
	if schema.MaxItems != nil {
		all = append(all, fmt.Sprintf("%s %s", name, strconv.FormatInt(*schema.MaxItems, 10)))
	}
	for property, of := range schema.Properties {
		all = append(all, bounds(property, &of)...)
	}
	if schema.Items != nil {
		all = append(all, bounds(name, schema.Items.Schema)...)
	}
	if schema.AdditionalProperties != nil {
		all = append(all, bounds(name, schema.AdditionalProperties.Schema)...)
	}
	return all
}

// TestConditionsOfAggregatedKinds checks that the conditions of kinds that Karmada serves without a schema are not validated.
func TestConditionsOfAggregatedKinds(t *testing.T) {
	for _, definition := range crds.All() {
		kind := definition.Spec.Names.Kind
		if kind != "Cluster" && kind != "ResourceRegistry" {
			continue
		}
		condition := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties["conditions"].Items.Schema
		if !slices.Equal(condition.Required, []string{"type"}) {
			t.Errorf("conditions of a %s require %v", kind, condition.Required)
		}
		for name, property := range condition.Properties {
			if property.MinLength != nil || property.Pattern != "" || len(property.Enum) > 0 {
				t.Errorf("the %s of a condition of a %s is validated", name, kind)
			}
		}
	}
}
