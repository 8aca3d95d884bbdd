package views

import (
	"slices"
	"strings"
	"testing"
)

// Which kinds are shown is configuration; four are the default.
func TestParse(t *testing.T) {
	all := []string{"pods", "events", "nodes", "replicasets.apps"}
	if got := Names(Default()); !slices.Equal(got, all) {
		t.Errorf("the default is %v", got)
	}
	chosen, err := Parse([]string{"replicasets.apps", "pods", "pods"})
	if err != nil || !slices.Equal(Names(chosen), []string{"replicasets.apps", "pods"}) {
		t.Errorf("two kinds are %v, %v", Names(chosen), err)
	}
	if _, err := Parse([]string{"pods", "secrets"}); err == nil || !strings.Contains(err.Error(), `"secrets"`) || !strings.Contains(err.Error(), "replicasets.apps") {
		t.Errorf("a kind that cannot be shown: %v", err)
	}
}
