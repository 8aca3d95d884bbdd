package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

func TestExclusions(t *testing.T) {
	text := "| specs | surface | reason |\n|---|---|---|\n" +
		"| `a (b\\|c)` | all | both |\n| `d` | `/` | one |\n| `e` | `/federation` | the other |\n| `f` | all |  |\n"
	for surface, want := range map[string][]string{"/": {"a (b|c)", "d"}, "/federation": {"a (b|c)", "e"}} {
		if got := exclusions(text, surface); !slices.Equal(got, want) {
			t.Errorf("got %q for %s, want %q", got, surface, want)
		}
	}
}

// TestPage checks that all rows of the page can be read.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", page))
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Count(string(text), "\n| `")
	if read := len(row.FindAllString(strings.ReplaceAll(string(text), `\|`, "\x00"), -1)); read != rows || rows == 0 {
		t.Errorf("%d of %d rows are complete: an expression, all or a surface, and a reason", read, rows)
	}
	for _, surface := range []string{"/", "/federation"} {
		for _, expression := range exclusions(string(text), surface) {
			if _, err := regexp.Compile(expression); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestReport(t *testing.T) {
	r, err := parseReport([]byte(`[{"SpecReports":[
		{"State":"passed","LeafNodeType":"BeforeSuite"},
		{"State":"passed","LeafNodeType":"It","LeafNodeText":"works"},
		{"State":"skipped","LeafNodeType":"It","LeafNodeText":"is excluded"},
		{"State":"skipped","LeafNodeType":"It","LeafNodeText":"skips itself","Failure":{"Message":"no nodes\nat all"}},
		{"State":"timedout","LeafNodeType":"It","LeafNodeText":"hangs","ContainerHierarchyTexts":["it"]}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"it hangs: timedout: ", "skips itself: skipped: no nodes"}; r.passed != 1 || !slices.Equal(r.failed, want) {
		t.Errorf("got %+v, want one passed and %q", r, want)
	}
	if _, err := parseReport([]byte(`[{"SpecReports":[{"State":"skipped"}]}]`)); err == nil {
		t.Error("a run without specs passes")
	}
}

// TestVersion checks that the suite has the version of Kubernetes that hub and cells run.
func TestVersion(t *testing.T) {
	if suite, kube := kubernetes(t, "suite/go.mod"), kubernetes(t, "../../kube/go.mod"); suite != kube {
		t.Errorf("the suite is of Kubernetes %s, the control planes are %s", suite, kube)
	}
}

func kubernetes(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse(file, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if r.Mod.Path == "k8s.io/kubernetes" {
			return r.Mod.Version
		}
	}
	t.Fatalf("%s lacks k8s.io/kubernetes", file)
	return ""
}
