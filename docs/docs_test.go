// Package docs_test checks that the documentation names files that exist.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// path matches a path of the repository in backquotes.
	path = regexp.MustCompile("`((?:internal|api|test|cmd|docs|kube)/[\\w./-]+)`")
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
