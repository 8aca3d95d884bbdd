// Package behaviour_test checks that the tests named in README.md exist.
package behaviour_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cellplane/cellplane/api/crds"
	"github.com/cellplane/cellplane/internal/testtable"
)

const root = "../../.."

// rows are the numbers of rows that the table must have.
var rows = map[string]int{"P": 31, "B": 9, "O": 10, "I": 13, "D": 6, "C": 14, "A": 3, "S": 27, "F": 7, "Q": 3, "N": 3}

// elsewhere are the rows that are covered elsewhere.
var elsewhere = []string{"C3"}

func TestTable(t *testing.T) {
	seen := testtable.Check(t, "README.md", root+"/api", root+"/internal", root+"/test")
	for letter, n := range rows {
		for i := range n {
			if row := letter + strconv.Itoa(i+1); !slices.Contains(seen, row) && !slices.Contains(elsewhere, row) {
				t.Errorf("%s is missing", row)
			}
		}
	}
}

// TestKubectlNames checks the names by which kubectl users know the kinds.
func TestKubectlNames(t *testing.T) {
	short := map[string]string{
		"PropagationPolicy": "pp", "ClusterPropagationPolicy": "cpp", "OverridePolicy": "op", "ClusterOverridePolicy": "cop",
		"ResourceBinding": "rb", "ClusterResourceBinding": "crb", "Work": "wk", "ResourceInterpreterCustomization": "ric",
		"FederatedHPA": "fhpa", "CronFederatedHPA": "cronfhpa", "MultiClusterService": "mcs", "MultiClusterIngress": "mci", "ResourceRegistry": "rr",
	}
	for _, definition := range crds.All() {
		kind := definition.Spec.Names.Kind
		if !strings.HasSuffix(definition.Spec.Group, "karmada.io") {
			continue
		}
		if !slices.Contains(definition.Spec.Names.Categories, "karmada-io") {
			t.Errorf("%s is not in the category karmada-io", kind)
		}
		if want := short[kind]; want != "" && !slices.Contains(definition.Spec.Names.ShortNames, want) {
			t.Errorf("%s has not the short name %s", kind, want)
		}
		delete(short, kind)
		for _, version := range definition.Spec.Versions {
			if len(version.AdditionalPrinterColumns) == 0 && slices.Contains([]string{"Cluster", "Work", "ResourceBinding", "ClusterResourceBinding", "PropagationPolicy", "ClusterPropagationPolicy"}, kind) {
				t.Errorf("%s has no columns", kind)
			}
		}
	}
	for kind := range short {
		t.Errorf("%s has no definition", kind)
	}
}
