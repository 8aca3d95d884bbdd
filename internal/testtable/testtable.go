// Package testtable checks tables that map requirements to tests: every row must name tests that exist.
//
// A table is in Markdown, with rows of three cells: ID, text, and tests separated by spaces. A test is named by its folder,
// function and optionally subtest: `gateway.TestGateway/Watch`.
package testtable

import (
	"fmt"
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
)

// Check reports an error for each row of a file that occurs twice, names no tests, or names one that is in none of the
// folders. It returns the IDs of the rows.
func Check(t testing.TB, file string, folders ...string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	known, err := testsIn(folders)
	if err != nil {
		t.Fatal(err)
	}
	rows, problems := check(string(text), known)
	for _, problem := range problems {
		t.Error(problem)
	}
	return rows
}

// tests are the test functions of each folder, and its string literals, which include the names of subtests.
type tests struct {
	functions map[string]bool
	strings   map[string]bool
}

func newTests() tests { return tests{functions: map[string]bool{}, strings: map[string]bool{}} }

// reference matches the name of a test, fuzz test or benchmark.
var reference = regexp.MustCompile(`^[a-z]+\.(Test|Fuzz|Benchmark)\w*(/\w+)*$`)

func check(text string, known tests) (rows, problems []string) {
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.TrimSpace(cells[1]) == "row" || strings.TrimSpace(cells[1]) == "threat" || strings.HasPrefix(cells[1], "--") {
			continue
		}
		row := strings.TrimSpace(cells[1])
		if slices.Contains(rows, row) {
			problems = append(problems, row+" occurs twice")
		}
		rows = append(rows, row)
		named := strings.Fields(cells[3])
		if len(named) == 0 {
			problems = append(problems, row+" names no tests")
		}
		for _, name := range named {
			if problem := known.problem(name); problem != "" {
				problems = append(problems, fmt.Sprintf("%s names %s, %s", row, name, problem))
			}
		}
	}
	return rows, problems
}

// problem returns what is wrong with the name of a test, or "" if it exists.
func (k tests) problem(name string) string {
	if !reference.MatchString(name) {
		return "which is not the name of a test"
	}
	parts := strings.Split(name, "/")
	if !k.functions[parts[0]] {
		return "which does not exist"
	}
	folder, _, _ := strings.Cut(parts[0], ".")
	for _, subtest := range parts[1:] {
		if !k.strings[folder+"."+subtest] {
			return "whose subtest " + subtest + " does not exist"
		}
	}
	return ""
}

func testsIn(folders []string) (tests, error) {
	known := newTests()
	for _, folder := range folders {
		if err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			known.add(filepath.Base(filepath.Dir(path)), file)
			return nil
		}); err != nil {
			return tests{}, fmt.Errorf("looking for tests in %s: %w", folder, err)
		}
	}
	return known, nil
}

func (k tests) add(folder string, file *ast.File) {
	for _, declaration := range file.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok && function.Recv == nil {
			k.functions[folder+"."+function.Name.Name] = true
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if value, err := strconv.Unquote(literal.Value); err == nil {
				k.strings[folder+"."+value] = true
			}
		}
		return true
	})
}
