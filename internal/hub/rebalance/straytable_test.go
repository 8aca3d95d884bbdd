package rebalance

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// TestStrays has slots change from the epoch in force to the next, and looks at objects in the cell that gets them.
func TestStrays(t *testing.T) {
	rest, leaving, joining := slots.Normal, slots.Out, slots.In
	type topology map[string]slots.State
	compile := func(epoch int64, states topology) *slots.Map {
		t.Helper()
		var cells []slots.Cell
		for _, name := range []string{"a", "b"} {
			if state, found := states[name]; found {
				cells = append(cells, slots.Cell{Name: name, Weight: 1, State: state})
			}
		}
		compiled, err := slots.Compile(epoch, cells)
		if err != nil {
			t.Fatal(err)
		}
		return compiled
	}
	late, moved, copied := held{}, held{}, held{}
	for o, object := range map[*held]*cellstore.Object{
		&late:   {Namespace: "shop", Name: "x"},
		&moved:  {Namespace: "shop", Name: "x", Labels: map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrated}},
		&copied: {Namespace: "shop", Name: "x", Annotations: map[string]string{names.CopiedFromHubAnnotation: "yes"}},
	} {
		*o = held{Object: object, class: cellstore.Template, key: "configmaps/shop/x"}
	}
	system := held{Object: &cellstore.Object{Namespace: corev1.NamespaceNodeLease, Name: "x"}, class: cellstore.Template}
	for _, test := range []struct {
		name             string
		inForce, next    topology
		rival, leftovers bool
		object           held
		want             bool
	}{
		{"a reversed change, the other cell has one", topology{"a": leaving, "b": rest}, topology{"a": joining, "b": rest}, true, false, late, true},
		{"a reversed change, the other cell has none", topology{"a": leaving, "b": rest}, topology{"a": joining, "b": rest}, false, true, late, false},
		{"a reversed change, it has moved", topology{"a": leaving, "b": rest}, topology{"a": joining, "b": rest}, true, true, moved, false},
		{"a change that goes on", topology{"a": joining, "b": rest}, topology{"a": joining, "b": rest}, true, true, late, false},
		{"a drained cell", topology{"b": rest}, topology{"a": joining, "b": rest}, false, true, late, true},
		{"a drained cell, a copy of the hub's object", topology{"b": rest}, topology{"a": joining, "b": rest}, false, true, copied, false},
		{"a drained cell, an object of the control plane", topology{"b": rest}, topology{"a": joining, "b": rest}, false, true, system, false},
		{"nothing has left any cell", topology{"b": rest}, topology{"a": joining, "b": rest}, false, false, late, false},
	} {
		former, err := (*slots.Owners)(nil).Next(compile(1, test.inForce))
		if err != nil {
			t.Fatal(err)
		}
		next := compile(2, test.next)
		target, _ := next.Index("a")
		for test.object.slot = 0; next.Route(test.object.slot).New != target || !next.Route(test.object.slot).Moving(); {
			test.object.slot++
		}
		found := &strays{compiled: next, former: former, leftovers: test.leftovers, rivals: map[slots.Index]map[string]struct{}{}}
		if test.rival {
			found.rivals[target] = map[string]struct{}{test.object.key: {}}
		}
		if got := found.has(target, test.object); got != test.want {
			t.Errorf("%s: a stray: %v, want %v", test.name, got, test.want)
		}
	}
}
