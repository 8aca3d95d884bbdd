package console

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cellplane/cellplane/internal/slots"
)

// slotTable is what both implementations compute of a topology.
type slotTable struct {
	Old, Next, OldBackup, Backup []int
	Seed                         uint32
}

// TestSlots compares the console's table of slots with that of the gateways, slot by slot.
func TestSlots(t *testing.T) {
	browser := launch(t)
	p := open(t, browser, "about:blank")
	p.load("model/slots")
	for i, cells := range [][]slots.Cell{
		{{Name: "cell-a", Weight: 1}},
		{{Name: "cell-a", Weight: 1}, {Name: "cell-b", Weight: 1, Seed: 3}},
		{{Name: "a", Weight: 1}, {Name: "b", Weight: 3, TargetWeight: 7, Seed: 127}, {Name: "c", Weight: 1000}},
		// A name of 48 letters is hashed in another way than a short one.
		{{Name: "a-very-long-cell-name-that-needs-lanes-012345678", Weight: 2, Seed: 9}, {Name: "x", Weight: 5, State: slots.In, Seed: 1}, {Name: "y", Weight: 5}, {Name: "z", Weight: 1, State: slots.Failed}},
		{{Name: "one", Weight: 1, State: slots.Out}, {Name: "two", Weight: 1}, {Name: "three", Weight: 1, Seed: 2147483647}},
		{{Name: "new", Weight: 1, State: slots.In}},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			got := evaluate[slotTable](p, fmt.Sprintf(`(async () => {
				const cells = %s, map = slots.compile(cells);
				return {Old: [...map.old], Next: [...map.next], OldBackup: [...map.oldBackup], Backup: [...map.backup], Seed: await slots.chooseSeed(cells, {name: "joins", weight: 2})};
			})()`, encode(t, cells)))
			want := tableOf(t, cells)
			for name, pair := range map[string][2][]int{"owners": {want.Old, got.Old}, "next owners": {want.Next, got.Next}, "backups": {want.OldBackup, got.OldBackup}, "next backups": {want.Backup, got.Backup}} {
				if !slices.Equal(pair[0], pair[1]) {
					t.Errorf("the %s differ", name)
				}
			}
			if got.Seed != want.Seed {
				t.Errorf("the seed of a cell that joins is %d, want %d", got.Seed, want.Seed)
			}
		})
	}
	for i := range 70 {
		name := fmt.Sprintf("%0*d", i+1, i)
		got := evaluate[slots.Slot](p, fmt.Sprintf("slots.slotOf('shop', %q)", name))
		if want := slots.Of("shop", name); got != want {
			t.Errorf("shop/%s has slot %d, want %d", name, got, want)
		}
	}
}

// load makes the exports of a module of the console a global variable, by the last part of its name.
func (p *tab) load(module string) {
	p.t.Helper()
	script := filepath.Join(p.t.TempDir(), "module.js")
	bundle := exec.CommandContext(p.ctx, "go", "tool", "-modfile=../../tools/go.mod", "esbuild", "../../internal/console/web/src/"+module+".ts",
		"--bundle", "--format=iife", "--global-name="+path.Base(module), "--outfile="+script, "--log-level=warning")
	if output, err := bundle.CombinedOutput(); err != nil {
		p.t.Fatalf("bundling %s: %v\n%s", module, err, output)
	}
	source, err := os.ReadFile(script)
	if err != nil {
		p.t.Fatal(err)
	}
	evaluate[bool](p, string(source)+"; true")
}

// encode returns cells as the topology spells them.
func encode(t *testing.T, cells []slots.Cell) string {
	t.Helper()
	var all []map[string]any
	for _, cell := range cells {
		all = append(all, map[string]any{"name": cell.Name, "seed": cell.Seed, "weight": cell.Weight, "targetWeight": cell.TargetWeight, "state": cell.State.String()})
	}
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func tableOf(t *testing.T, cells []slots.Cell) slotTable {
	t.Helper()
	compiled, err := slots.Compile(1, cells)
	if err != nil {
		t.Fatal(err)
	}
	table := slotTable{Seed: slots.Seed(cells, slots.Cell{Name: "joins", Weight: 2})}
	for slot := range slots.Slot(slots.Count) {
		route := compiled.Route(slot)
		table.Old, table.Next = append(table.Old, int(route.Old)), append(table.Next, int(route.New))
		table.OldBackup, table.Backup = append(table.OldBackup, int(route.OldBackup)), append(table.Backup, int(route.Backup))
	}
	return table
}
