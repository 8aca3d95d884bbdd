// Package docs_test checks that the documentation names files and tests that exist.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cellplane/cellplane/internal/testtable"
)

var (
	// path matches a path of the repository in backquotes.
	path = regexp.MustCompile("`((?:internal|api|test|cmd|docs|kube|images)/[\\w./-]+)`")
	// link matches a relative link.
	link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
)

// TestPathsExist finds references to packages, files and pages that have been renamed or removed.
func TestPathsExist(t *testing.T) {
	var pages []string
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && len(entry.Name()) > 2 {
			return filepath.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			pages = append(pages, name)
		}
		return err
	})
	if err != nil || len(pages) < 10 {
		t.Fatalf("found %d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range path.FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("..", string(found[1]))); err != nil {
				t.Errorf("%s names %s, which does not exist", page, found[1])
			}
		}
		for _, found := range link.FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), string(found[1]))); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, found[1])
			}
		}
	}
}

// TestThreats checks that the tests in the tables of security.md exist.
func TestThreats(t *testing.T) {
	if rows := testtable.Check(t, "security.md", "../api", "../internal", "../test"); len(rows) == 0 {
		t.Error("there are no rows")
	}
}

// TestKarmada checks the comparison with Karmada: its tests exist, every row says how it compares, and what is not there is what api.md says.
func TestKarmada(t *testing.T) {
	if rows := testtable.Check(t, "karmada.md", "../api", "../internal", "../test"); len(rows) < 20 {
		t.Errorf("there are %d rows", len(rows))
	}
	page, err := os.ReadFile("karmada.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "--") || strings.TrimSpace(cells[1]) == "row" {
			continue
		}
		if !verdict.MatchString(cells[2]) {
			t.Errorf("the row%sdoes not say how it compares", cells[1])
		}
	}
	api, err := os.ReadFile("api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, missing, _ := strings.Cut(string(page), "## Not there")
	missing, _, _ = strings.Cut(missing, "Also missing")
	stored := 0
	for line := range strings.Lines(string(api)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		for kind := range strings.SplitSeq(strings.TrimSpace(cells[2]), ", ") {
			if !kindName.MatchString(kind) {
				continue
			}
			inert := strings.Contains(cells[3], "stored, not acted on")
			if inert {
				stored++
			}
			if regexp.MustCompile(`\b`+regexp.QuoteMeta(kind)+`\b`).MatchString(missing) != inert {
				t.Errorf("%s: api.md says that it is acted on: %t; karmada.md says something else", kind, !inert)
			}
		}
	}
	if stored == 0 {
		t.Log("all kinds are acted on")
	}
}

// karmadaMetrics returns the names of the metrics of Karmada's components, by which dashboards and alerts know them.
func karmadaMetrics(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile("../internal/engine/behaviour/testdata/karmada-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(content)) {
		if name, _, _ := strings.Cut(line, " "); name != "#" {
			all = append(all, name)
		}
	}
	return all
}

// TestMetricsOfKarmada checks that exactly those of Karmada's metrics are missing that karmada.md says are.
func TestMetricsOfKarmada(t *testing.T) {
	page, err := os.ReadFile("karmada.md")
	if err != nil {
		t.Fatal(err)
	}
	_, missing, _ := strings.Cut(string(page), "of the metrics of Karmada's own components:")
	missing, _, found := strings.Cut(missing, "Others have Karmada's names")
	if !found {
		t.Fatal("karmada.md does not say which metrics are missing")
	}
	named := regexp.MustCompile("`([a-z_]+)(…?)`").FindAllStringSubmatch(missing, -1)
	code := source(t, "../internal")
	for _, metric := range karmadaMetrics(t) {
		saidMissing := slices.ContainsFunc(named, func(n []string) bool { return n[1] == metric || n[2] != "" && strings.HasPrefix(metric, n[1]) })
		if exists := strings.Contains(code, `"`+metric+`"`); exists == saidMissing {
			t.Errorf("%s exists: %t; karmada.md says something else", metric, exists)
		}
	}
}

// karmadactl are the subcommands of karmadactl.
var karmadactl = []string{
	"addons", "annotate", "api-resources", "api-versions", "apply", "attach", "completion", "cordon", "create", "deinit", "delete", "describe", "edit", "exec", "explain",
	"get", "init", "interpret", "join", "label", "logs", "options", "patch", "promote", "register", "taint", "token", "top", "uncordon", "unjoin", "unregister", "version",
}

// TestKarmadactl checks that karmada.md says something about each subcommand of karmadactl, and that the script tries it or says why not.
func TestKarmadactl(t *testing.T) {
	page, err := os.ReadFile("karmada.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../test/karmadactl/try")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## karmadactl\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, subcommand := range karmadactl {
		if !strings.Contains(table, "`"+subcommand+"`") {
			t.Errorf("karmada.md does not mention karmadactl %s", subcommand)
		}
		tried := regexp.MustCompile(`(?m)^(KUBE_EDITOR=true )?try \S+ ` + subcommand + `\b`).Match(script)
		excused := regexp.MustCompile(`(?m)^echo "not tried: .*\b` + subcommand + `\b`).Match(script)
		if tried == excused {
			t.Errorf("the script tries karmadactl %s: %t; it says that it does not: %t", subcommand, tried, excused)
		}
	}
}

// karmadaReasons returns the reasons of Karmada's events, by which users' alerts know them.
func karmadaReasons(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile("../internal/engine/behaviour/testdata/karmada-events.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(content)) {
		if !strings.HasPrefix(line, "#") {
			all = append(all, strings.Fields(line)...)
		}
	}
	return all
}

// TestReasonsOfKarmada checks that exactly those reasons of Karmada's events are missing that karmada.md says are.
func TestReasonsOfKarmada(t *testing.T) {
	page, err := os.ReadFile("karmada.md")
	if err != nil {
		t.Fatal(err)
	}
	_, missing, _ := strings.Cut(string(page), "of the reasons of Karmada's events:")
	missing, _, found := strings.Cut(missing, "\n*")
	if !found {
		t.Fatal("karmada.md does not say which reasons are missing")
	}
	code := source(t, "../internal")
	for _, constant := range regexp.MustCompile(`(Event\w+)\s+= ("\w+")`).FindAllStringSubmatch(source(t, "../api/names"), -1) {
		if regexp.MustCompile(`names\.` + constant[1] + `\b`).MatchString(code) {
			code += constant[2]
		}
	}
	for _, reason := range karmadaReasons(t) {
		if exists, said := strings.Contains(code, `"`+reason+`"`), strings.Contains(missing, "`"+reason+"`"); exists == said {
			t.Errorf("%s is written: %t; karmada.md says that it is not: %t", reason, exists, said)
		}
	}
}

// source returns all Go code below a folder but its tests.
func source(t *testing.T, folder string) string {
	t.Helper()
	var code strings.Builder
	if err := filepath.WalkDir(folder, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		content, err := os.ReadFile(name)
		code.Write(content)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return code.String()
}

// kindName matches the name of a kind.
var kindName = regexp.MustCompile(`^[A-Z]\w+$`)

// verdict is how a feature compares with Karmada's.
var verdict = regexp.MustCompile(`^ \*\*(Same|Better|Different)\.\*\* `)
