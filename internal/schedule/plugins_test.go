package schedule

import (
	"slices"
	"testing"
)

func TestParsePlugins(t *testing.T) {
	// The names of Karmada's plugins are among ours.
	for _, name := range []string{"APIEnablement", "ClusterAffinity", "ClusterEviction", "ClusterLocality", "SpreadConstraint", "TaintToleration"} {
		if !slices.Contains(PluginNames(), name) {
			t.Errorf("there is no plugin %s", name)
		}
	}
	for _, all := range [][]string{nil, {"*"}, {"*", "TaintToleration"}, PluginNames()} {
		if p, err := ParsePlugins(all); p != nil || err != nil {
			t.Errorf("%v does not mean all: %+v, %v", all, p, err)
		}
	}
	for _, mistaken := range []string{"", "-", "-*", "Nobody", "-Nobody", "ClusterRemoval", "-ClusterRemoval"} {
		if _, err := ParsePlugins([]string{"*", mistaken}); err == nil {
			t.Errorf("%q is accepted", mistaken)
		}
	}
	only, err := ParsePlugins([]string{"TaintToleration"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range only.filters() {
		names = append(names, f.Name())
	}
	if !slices.Equal(names, []string{"ClusterRemoval", "TaintToleration"}) || len(only.scorers(defaultScorers)) > 0 {
		t.Errorf("TaintToleration alone leaves the filters %v", names)
	}
}
