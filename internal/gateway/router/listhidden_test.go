package router

import (
	"fmt"
	"testing"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
)

// TestHiddenOf counts the objects with the label of moves that a list does not show.
func TestHiddenOf(t *testing.T) {
	compiled, err := slots.Compile(2, []slots.Cell{{Name: "a", Weight: 1}, {Name: "b", Weight: 1, State: slots.In}})
	if err != nil {
		t.Fatal(err)
	}
	view := &routing.View{Map: compiled}
	named := func(moves bool) string {
		for i := 0; ; i++ {
			if key := fmt.Sprintf("default/some-%d", i); compiled.Route(slotOfKey(key)).Moving() == moves {
				return key
			}
		}
	}
	const from, to = slots.Index(0), slots.Index(1)
	frozen := func(cell slots.Index) routing.Copy { return routing.Copy{Cell: cell, Label: names.RebalanceMigrating} }
	released := func(copied string) routing.Copy {
		return routing.Copy{Cell: from, Label: names.RebalanceMigrated, CopiedAt: copied}
	}
	for _, test := range []struct {
		name   string
		key    string
		copies []routing.Copy
		want   int
	}{
		{"frozen", named(true), []routing.Copy{frozen(from)}, 0},
		{"copied", named(true), []routing.Copy{frozen(from), frozen(to)}, 1},
		{"committed", named(true), []routing.Copy{released("b/100"), frozen(to)}, 1},
		{"active", named(true), []routing.Copy{released("b/100")}, 1},
		{"moved after the new cell was read", named(true), []routing.Copy{released("b/101")}, 0},
		{"left behind by an earlier move", named(false), []routing.Copy{{Cell: to, Label: names.RebalanceMigrated}}, 1},
		{"in a cell that does not own it", named(false), []routing.Copy{frozen(to)}, 1},
	} {
		if got := hiddenOf(view, map[string][]routing.Copy{test.key: test.copies}, []uint64{100, 100}); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}
