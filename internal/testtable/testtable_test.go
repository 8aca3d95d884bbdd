package testtable

import (
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	const head = "# Words\n\n| row | words | tests |\n|---|---|---|\n"
	known := newTests()
	for _, name := range []string{"testtable.TestCheck", "splice.FuzzSkim"} {
		known.functions[name] = true
	}
	known.strings["testtable.Watch"] = true
	for name, test := range map[string]struct {
		table   string
		rows    []string
		problem string
	}{
		"all well":           {"| A1 | x | testtable.TestCheck splice.FuzzSkim |\n| A2 | y | testtable.TestCheck/Watch |\n", []string{"A1", "A2"}, ""},
		"twice":              {"| A1 | x | splice.FuzzSkim |\n| A1 | x | splice.FuzzSkim |\n", []string{"A1", "A1"}, "A1 occurs twice"},
		"no tests":           {"| A1 | x | |\n", []string{"A1"}, "A1 names no tests"},
		"words":              {"| A1 | x | splice.FuzzSkim and more |\n", []string{"A1"}, "A1 names and, which is not"},
		"no such test":       {"| A1 | x | testtable.TestNothing |\n", []string{"A1"}, "which does not exist"},
		"in another folder":  {"| A1 | x | splice.TestCheck |\n", []string{"A1"}, "which does not exist"},
		"no such subtest":    {"| A1 | x | testtable.TestCheck/List |\n", []string{"A1"}, "whose subtest List does not exist"},
		"not of this folder": {"| A1 | x | splice.FuzzSkim/Watch |\n", []string{"A1"}, "whose subtest Watch does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			rows, problems := check(head+test.table, known)
			if !slices.Equal(rows, test.rows) {
				t.Errorf("the rows are %v", rows)
			}
			if all := strings.Join(problems, "\n"); (test.problem == "") != (all == "") || !strings.Contains(all, test.problem) {
				t.Errorf("the problems are %q, want %q", all, test.problem)
			}
		})
	}
}

func TestTestsIn(t *testing.T) {
	known, err := testsIn([]string{"../testtable"})
	if err != nil || !known.functions["testtable.TestTestsIn"] || !known.strings["testtable.all well"] {
		t.Errorf("found %v, %v", known, err)
	}
	if _, err := testsIn([]string{"nowhere"}); err == nil {
		t.Error("tests were found in a missing folder")
	}
}
