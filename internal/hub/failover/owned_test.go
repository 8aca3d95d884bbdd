package failover

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/slots"
)

// TestOwned lets a cell fail at rest or during any change, which may have been turned back. Every slot that it owned, before or after the change, counts
// as one that it may have owned. At rest, no other does.
func TestOwned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec, err := cells.First("cell-a", "cell-b", "cell-c")
		if err != nil {
			t.Fatal(err)
		}
		for i := range spec.Cells {
			spec.Cells[i].Weight = rapid.Int32Range(1, 4).Draw(t, "weight")
		}
		name := fmt.Sprintf("cell-%c", 'a'+rapid.IntRange(0, 2).Draw(t, "cell"))
		change := rapid.SampledFrom([]string{"none", "add", "drain", "weigh"}).Draw(t, "change")
		edit := map[string]cells.Edit{"add": cells.Add("cell-d", 2), "drain": cells.Drain(name), "weigh": cells.Weight(name, rapid.Int32Range(5, 9).Draw(t, "new weight"))}[change]
		if edit != nil {
			if err := edit(&spec); err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "turned back") {
				if err := cells.Reverse(&spec); err != nil {
					t.Fatal(err)
				}
			}
		}
		before, err := cells.Compile(1, &spec)
		if err != nil {
			t.Fatal(err)
		}
		failed := spec.Cells[rapid.IntRange(0, len(spec.Cells)-1).Draw(t, "the cell that fails")].Name
		if err := cells.Fail(failed)(&spec); err != nil {
			t.Fatal(err)
		}
		after, err := cells.Compile(2, &spec)
		if err != nil {
			t.Fatal(err)
		}
		promotion := Promotion{Topology: after, Failed: failed}
		owned, err := promotion.owned()
		if err != nil {
			t.Fatal(err)
		}
		cell, _ := before.Index(failed)
		for slot := range slots.Slot(slots.Count) {
			route := before.Route(slot)
			switch had := route.Old == cell || route.New == cell; {
			case had && !owned(slot):
				t.Fatalf("%s owned slot %d: %+v", failed, slot, route)
			case !had && owned(slot) && change == "none":
				t.Fatalf("%s did not own slot %d: %+v", failed, slot, route)
			}
		}
	})
}
