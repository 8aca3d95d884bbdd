package objbytes_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// TestCheckAliases checks documents whose aliases make them large, and some that only look so.
func TestCheckAliases(t *testing.T) {
	nested := "x0: &x0 some text\n"
	for i := range 30 {
		nested += fmt.Sprintf("x%d: &x%d [*x%d, *x%d]\n", i+1, i+1, i, i)
	}
	for what, test := range map[string]struct {
		document string
		want     error
	}{
		"many aliases of a long text":  {"a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 1<<18) + "]\n", objbytes.ErrAliases},
		"aliases of aliases":           {nested, objbytes.ErrAliases},
		"a value that contains itself": {"a: &a [*a]\n", objbytes.ErrAliases},
		"a few aliases":                {"a: &a {x: y}\nb: *a\nc: {<<: *a, z: 1}\n", nil},
		"a long text with both signs":  {"a: \"" + strings.Repeat("&a *a ", 1<<18) + "\"\n", nil},
		"JSON":                         {`{"a":"&a","b":"*a"}`, nil},
		"no YAML":                      {"a: &a [*a", objbytes.ErrMalformed},
	} {
		if err := objbytes.CheckAliases([]byte(test.document)); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s: %v, want %v", what, err, test.want)
		}
	}
}
