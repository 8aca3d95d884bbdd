package binding

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// What stands in a condition is text, wherever it is cut and whatever a script says.
func TestDescribe(t *testing.T) {
	for _, filler := range []string{"x", "ü", "世", "\xff"} {
		for _, start := range []string{"", "a", "ab"} {
			got := describe(errors.New(start + strings.Repeat(filler, 2000)))
			if !utf8.ValidString(got) || len(got) > longestProblem {
				t.Errorf("%q makes %q", start+filler, got)
			}
		}
	}
}
