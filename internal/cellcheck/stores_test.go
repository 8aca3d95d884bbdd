package cellcheck

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// stored is an object or a copy that a test stores.
type stored struct {
	cell string
	// copyOf is the cell whose object it is a copy of; if empty, it is an object.
	copyOf string
	text   string
	status string
}

// TestStores stores objects and copies with problems, and expects each to be found.
func TestStores(t *testing.T) {
	stores := map[string]*cellstore.Store{}
	for _, plane := range testenv.StartFederation(t, local.Spec{Cells: 2, WithoutHub: true}).Cells {
		stores[plane.Name()] = storetest.For(t, plane)
	}
	const a, b = "cell-a", "cell-b"
	if len(stores) != 2 || stores[a] == nil || stores[b] == nil {
		t.Fatalf("the cells are %v", stores)
	}
	atRest, moving := compile(t, slots.Normal), compile(t, slots.In)
	for name, test := range map[string]struct {
		topology *slots.Map
		owner    string // in a topology at rest
		stored   []stored
		want     []Finding
	}{
		"backed up":               {atRest, a, []stored{{cell: a, text: "1"}, {cell: b, copyOf: a, text: "1"}}, nil},
		"without a copy":          {atRest, a, []stored{{cell: a, text: "1"}}, []Finding{{Problem: NoCopy, Cell: a, Other: b}}},
		"with an old copy":        {atRest, a, []stored{{cell: a, text: "2"}, {cell: b, copyOf: a, text: "1"}}, []Finding{{Problem: OldCopy, Cell: a, Other: b}}},
		"a copy of nothing":       {atRest, a, []stored{{cell: b, copyOf: a, text: "1"}}, []Finding{{Problem: NeedlessCopy, Cell: a, Other: b}}},
		"a copy in its own cell":  {atRest, a, []stored{{cell: a, text: "1"}, {cell: a, copyOf: a, text: "1"}, {cell: b, copyOf: a, text: "1"}}, []Finding{{Problem: NeedlessCopy, Cell: a, Other: a}}},
		"in a wrong cell":         {atRest, a, []stored{{cell: b, text: "1"}}, []Finding{{Problem: Misplaced, Cell: b, Other: a}}},
		"here and in a wrong one": {atRest, b, []stored{{cell: a, text: "1"}, {cell: b, text: "1"}, {cell: a, copyOf: b, text: "1"}}, []Finding{{Problem: Misplaced, Cell: a, Other: b}}},
		"a stale copy":            {atRest, b, []stored{{cell: a, text: "1", status: names.RebalanceMigrated}, {cell: b, text: "1"}, {cell: a, copyOf: b, text: "1"}}, nil},
		"in two cells":            {moving, b, []stored{{cell: a, text: "1"}, {cell: b, text: "1"}}, []Finding{{Problem: Doubled, Cell: b, Other: a}}},
		"moving":                  {moving, b, []stored{{cell: a, text: "1", status: names.RebalanceMigrating}, {cell: b, text: "1", status: names.RebalanceMigrating}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			object := nameIn(t, atRest, test.owner)
			key := "configmaps/default/" + object
			for _, s := range test.stored {
				store := stores[s.cell]
				at := store.Key(key)
				if s.copyOf != "" {
					at = backup.Root + s.copyOf + "/" + key
				}
				value := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"default","uid":"u","labels":{%s}},"data":{"text":%q}}`, object, label(s.status), s.text)
				if _, err := store.Client().Put(t.Context(), at, value); err != nil {
					t.Fatal(err)
				}
				defer func() {
					if _, err := store.Client().Delete(t.Context(), at); err != nil {
						t.Error(err)
					}
				}()
			}
			report, err := Check(t.Context(), test.topology, stores, 0)
			if err != nil {
				t.Fatal(err)
			}
			var got []Finding
			for _, finding := range report.Findings {
				// While objects move, findings about copies depend on the phase and are ignored.
				if finding.Key == key && (test.topology == atRest || finding.Problem == Doubled || finding.Problem == Misplaced) {
					got = append(got, Finding{Problem: finding.Problem, Cell: finding.Cell, Other: finding.Other})
				} else if finding.Key != key {
					t.Errorf("unexpected finding %v", finding)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("found %v, want %v", got, test.want)
			}
		})
	}
}

// TestMeanwhile adds a copy and removes another while the stores are read. The report counts the current ones.
func TestMeanwhile(t *testing.T) {
	stores := map[string]*cellstore.Store{}
	for _, plane := range testenv.StartFederation(t, local.Spec{Cells: 2, WithoutHub: true}).Cells {
		stores[plane.Name()] = storetest.For(t, plane)
	}
	const a, b = "cell-a", "cell-b"
	topology := compile(t, slots.Normal)
	name := nameIn(t, topology, a)
	key := "configmaps/default/" + name
	value := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"default","uid":"u"}}`, name)
	ctx := t.Context()
	write := func(cell string, put bool, at string) {
		t.Helper()
		operation := cellstore.Delete(at)
		if put {
			operation = cellstore.Put(at, []byte(value))
		}
		if _, err := stores[cell].Client().Do(ctx, operation); err != nil {
			t.Fatal(err)
		}
	}
	needless := backup.Root + a + "/configmaps/default/gone"
	write(a, true, stores[a].Key(key))
	write(b, true, needless)
	c := newCheck(topology, stores, lateness{})
	if err := c.read(ctx); err != nil {
		t.Fatal(err)
	}
	if got := len(c.report.Findings); got != 2 {
		t.Fatalf("found %v", c.report.Findings)
	}
	write(b, true, backup.Root+a+"/"+key)
	write(b, false, needless)
	if err := c.confirm(ctx); err != nil {
		t.Fatal(err)
	}
	if c.report.Objects != 1 || c.report.Copies != 1 || len(c.report.Findings) != 0 {
		t.Errorf("the report is %+v", c.report)
	}
}

func label(status string) string {
	if status == "" {
		return ""
	}
	return fmt.Sprintf("%q:%q", names.RebalanceStatusLabel, status)
}

// compile returns a topology of two cells; the second one has a state.
func compile(t *testing.T, state slots.State) *slots.Map {
	t.Helper()
	topology, err := slots.Compile(1, []slots.Cell{{Name: "cell-a", Weight: 1}, {Name: "cell-b", Weight: 1, State: state}})
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

// nameIn returns a name whose object belongs to a cell.
func nameIn(t *testing.T, topology *slots.Map, cell string) string {
	t.Helper()
	for i := 0; ; i++ {
		if name := fmt.Sprintf("map-%d", i); topology.Name(topology.Route(slots.Of("default", name)).New) == cell {
			return name
		}
	}
}
