// Package behaviour_test keeps the table in README.md true: what it names exists.
package behaviour_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cellplane/cellplane/api/crds"
)

const root = "../../.."

// rows are all that the table has to have.
var rows = map[string]int{"P": 29, "B": 9, "O": 10, "I": 13, "D": 6, "C": 14, "A": 3, "S": 27, "F": 7, "Q": 3}

// elsewhere are rows that the table says are not there.
var elsewhere = []string{"C3", "C4"}

func TestTable(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testsIn(t)
	named := regexp.MustCompile(`\b[a-z]+\.Test\w+`)
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || cells[1] == " row " || strings.HasPrefix(cells[1], "--") {
			continue
		}
		row := strings.TrimSpace(cells[1])
		if seen[row] {
			t.Errorf("%s is there twice", row)
		}
		seen[row] = true
		references := named.FindAllString(cells[3], -1)
		if len(references) == 0 || len(references) != len(strings.Fields(cells[3])) {
			t.Errorf("%s names no tests, or something else: %s", row, cells[3])
		}
		for _, reference := range references {
			if !tests[reference] {
				t.Errorf("%s names %s, which does not exist", row, reference)
			}
		}
	}
	for letter, n := range rows {
		for i := range n {
			if row := letter + strconv.Itoa(i+1); !seen[row] && !slices.Contains(elsewhere, row) {
				t.Errorf("%s is missing", row)
			}
		}
	}
}

// testsIn returns all tests of the repository, named by the folder they are in.
func testsIn(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	walk := func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder := filepath.Base(filepath.Dir(path))
		for _, declaration := range file.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && function.Recv == nil {
				tests[folder+"."+function.Name.Name] = true
			}
		}
		return nil
	}
	for _, folder := range []string{"api", "internal", "test"} {
		if err := filepath.WalkDir(filepath.Join(root, folder), walk); err != nil {
			t.Fatal(err)
		}
	}
	return tests
}

// kubectl users know kinds by these names.
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
			t.Errorf("%s is not known as %s", kind, want)
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
