package schedule

import (
	"slices"
	"testing"
)

func TestParsePlugins(t *testing.T) {
	// Karmada's plugin names are supported.
	for _, name := range []string{"APIEnablement", "ClusterAffinity", "ClusterEviction", "ClusterLocality", "SpreadConstraint", "TaintToleration"} {
		if !slices.Contains(PluginNames(), name) {
			t.Errorf("plugin %s is missing", name)
		}
	}
	for _, all := range [][]string{nil, {"*"}, {"*", "TaintToleration"}, PluginNames()} {
		if p, err := ParsePlugins(all); p != nil || err != nil {
			t.Errorf("%v does not enable all plugins: %+v, %v", all, p, err)
		}
	}
	for _, invalid := range []string{"", "-", "-*", "Nobody", "-Nobody", "ClusterRemoval", "-ClusterRemoval"} {
		if _, err := ParsePlugins([]string{"*", invalid}); err == nil {
			t.Errorf("%q is accepted", invalid)
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
		t.Errorf("TaintToleration alone enables the filters %v", names)
	}
}
