package backup

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// someTopology draws a topology at rest or in any change.
func someTopology(t *rapid.T) []slots.Cell {
	cells := make([]slots.Cell, rapid.IntRange(2, 6).Draw(t, "cells"))
	for i := range cells {
		cells[i] = slots.Cell{Name: fmt.Sprintf("cell-%d", i), Weight: rapid.Int32Range(1, 4).Draw(t, "weight")}
	}
	last := &cells[len(cells)-1]
	switch rapid.SampledFrom([]string{"rest", "add", "drain", "weight"}).Draw(t, "change") {
	case "add":
		last.State = slots.In
	case "drain":
		last.State = slots.Out
	case "weight":
		last.TargetWeight = last.Weight + rapid.Int32Range(1, 5).Draw(t, "more")
	}
	return cells
}

func template(labels map[string]string, name string) *cellstore.Object {
	return &cellstore.Object{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "shop", Name: name, Labels: labels}
}

// TestBackupCellTakesOver checks what failover depends on: whichever cell fails, at rest or during a change, the
// backup cell of an object owns its slot when the failed cell is out of the topology.
func TestBackupCellTakesOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells := someTopology(t)
		before, err := slots.Compile(1, cells)
		if err != nil {
			t.Fatal(err)
		}
		failing := rapid.IntRange(0, len(cells)-1).Draw(t, "failing")
		without := slices.Clone(cells)
		without[failing].State, without[failing].TargetWeight = slots.Failed, 0
		after, err := slots.Compile(2, without)
		if err != nil {
			return // no cell is left to take over
		}
		for i := range 200 {
			object := template(nil, fmt.Sprintf("web-%d", i))
			_, slot := cellstore.Classify(object)
			was, is, failed := before.Route(slot), after.Route(slot), slots.Index(failing)
			target := CellFor(before, failed, object)
			switch {
			case was.New == failed && target != is.New:
				t.Fatalf("slot %d: the copy is in %s, and %s takes over", slot, before.Name(target), after.Name(is.New))
			case was.New != failed && was.Old == failed && target != slots.None && target != is.Old:
				t.Fatalf("slot %d, not moved: the copy is in %s, and %s takes over", slot, before.Name(target), after.Name(is.Old))
			case was.New != failed && was.Old != failed && target != slots.None:
				t.Fatalf("slot %d: there is a backup cell for what %s does not own", slot, before.Name(failed))
			}
		}
	})
}

func TestWhatIsNotKept(t *testing.T) {
	alone, err := slots.Compile(1, []slots.Cell{{Name: "a", Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	two, err := slots.Compile(1, []slots.Cell{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	web := template(nil, "web")
	_, slot := cellstore.Classify(web)
	owner := two.Route(slot).New
	if target := CellFor(two, owner, web); target != 1-owner {
		t.Errorf("the backup cell of an object of %s is %d", two.Name(owner), target)
	}
	frozen := template(map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrating}, "web")
	if target := CellFor(two, owner, frozen); target != 1-owner {
		t.Errorf("the backup cell of an object that moves is %d", target)
	}
	for what, got := range map[string]slots.Index{
		"the object of the only cell": CellFor(alone, 0, web),
		"an object of another cell":   CellFor(two, 1-owner, web),
		"a stale copy of a move":      CellFor(two, owner, template(map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrated}, "web")),
		"a namespace":                 CellFor(two, owner, &cellstore.Object{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, Name: "shop"}),
	} {
		if got != slots.None {
			t.Errorf("the backup cell of %s is %d", what, got)
		}
	}
}
