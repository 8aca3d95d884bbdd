package crds_test

import (
	"strings"
	"testing"

	"github.com/cellplane/cellplane/api/crds"
	"github.com/cellplane/cellplane/api/names"
)

// TestJudge meets definitions of other releases.
func TestJudge(t *testing.T) {
	for _, test := range []struct{ name, level, serves, want string }{
		{"this release", "1", "1", ""},
		{"the next release, which goes with this one", "2", "1", ""},
		{"a later release", "3", "2", "are of level 3, for parts of level 2 and later, and this release has level 1: run a newer release"},
		{"before levels", "", "", "are of level 0, and this release needs level 1: install those of this release first"},
		{"no level", "new", "1", `the annotation cellplane.io/level of CustomResourceDefinition celltopologies.cellplane.io is "new", not a number`},
		{"no level for parts", "2", "new", `the annotation cellplane.io/serves-level of CustomResourceDefinition celltopologies.cellplane.io is "new", not a number`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := crds.Judge(map[string]string{names.LevelAnnotation: test.level, names.ServesLevelAnnotation: test.serves})
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("the judgement is %v, want %q", err, test.want)
			}
		})
	}
	for _, definition := range crds.All() {
		if err := crds.Judge(definition.Annotations); (err == nil) != (definition.Name == crds.Marker) {
			t.Errorf("the judgement of %s is %v, and the only one with a level should be %s", definition.Name, err, crds.Marker)
		}
	}
}
