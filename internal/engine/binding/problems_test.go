package binding

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// Messages for conditions are valid UTF-8 and bounded, wherever they are cut.
func TestDescribe(t *testing.T) {
	for _, filler := range []string{"x", "ü", "世", "\xff"} {
		for _, start := range []string{"", "a", "ab"} {
			got := describe(errors.New(start + strings.Repeat(filler, 2000)))
			if !utf8.ValidString(got) || len(got) > longestProblem {
				t.Errorf("%q becomes %q", start+filler, got)
			}
		}
	}
}
