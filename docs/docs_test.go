// Package docs_test checks that the documentation names files and tests that exist.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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

// kindName matches the name of a kind.
var kindName = regexp.MustCompile(`^[A-Z]\w+$`)

// verdict is how a feature compares with Karmada's.
var verdict = regexp.MustCompile(`^ \*\*(Same|Better|Different)\.\*\* `)
