package failover

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
	"github.com/cellplane/cellplane/internal/slots"
)

// The failed cell of these tests, and the revision that its backup has reached.
const (
	gone    = "cell-c"
	reached = 50
)

// found is what is in a store when the cell fails.
type found struct {
	status handover.Status
	text   string
	// at is the revision of the copy in the failed cell, if the object has moved there.
	at int
}

var nothing = found{}

func active(text string) found          { return found{handover.Active, text, 0} }
func frozenAs(text string) found        { return found{handover.Frozen, text, 0} }
func staleAt(text string, at int) found { return found{handover.Moved, text, at} }

// testDuringAChange loses a cell at every step of a move from it or to it.
func (w *world) testDuringAChange(t *testing.T) {
	const normal, in, out = slots.Normal, slots.In, slots.Out
	for _, change := range []struct {
		name string
		// a, b and c are what the three cells are when the last of them fails.
		a, b, c slots.State
		// old and new own the objects of the test before and after the change.
		old, new string
		cases    []moved
	}{
		{"the joining cell", normal, normal, in, "cell-a", gone, []moved{
			{"not begun", active("1"), nothing, nothing, "1"},
			{"frozen", frozenAs("1"), nothing, nothing, "1"},
			{"copied", frozenAs("1"), nothing, frozenAs("1"), "1"},
			{"committed", staleAt("1", 40), nothing, frozenAs("1"), "1"},
			{"changed there", staleAt("1", 40), nothing, active("2"), "2"},
			{"deleted there", staleAt("1", 40), nothing, nothing, ""},
			{"committed, and no copy made", staleAt("1", 60), nothing, nothing, "1"},
			{"created there", nothing, nothing, active("1"), "1"},
		}},
		{"the leaving cell", normal, normal, out, gone, "cell-a", []moved{
			{"not begun", nothing, nothing, active("1"), "1"},
			{"frozen", nothing, nothing, frozenAs("1"), "1"},
			{"copied", frozenAs("2"), nothing, frozenAs("2"), "2"},
			{"copied, and the backup is late", frozenAs("2"), nothing, active("1"), "2"},
			{"changed while frozen", frozenAs("2"), nothing, frozenAs("3"), "3"},
			{"committed", frozenAs("2"), nothing, nothing, "2"},
			{"activated, and the backup is late", active("3"), nothing, frozenAs("2"), "3"},
			{"it had been here before", staleAt("0", 40), nothing, active("1"), "1"},
		}},
		{"the target of a drained cell", out, normal, normal, "cell-a", gone, []moved{
			{"not begun", active("1"), nothing, nothing, "1"},
			{"not begun, and an old copy", active("2"), nothing, frozenAs("1"), "2"},
			{"copied", frozenAs("1"), nothing, frozenAs("1"), "1"},
			{"committed", staleAt("1", 40), nothing, frozenAs("1"), "1"},
			{"changed there", staleAt("1", 40), nothing, active("2"), "2"},
			{"changed there, with a stale copy in the backup cell", staleAt("1", 40), staleAt("0", 0), active("2"), "2"},
			{"committed, and no copy made", staleAt("1", 60), nothing, nothing, "1"},
			{"committed, no copy made, with a stale copy in the backup cell", staleAt("1", 60), staleAt("0", 0), nothing, "1"},
			{"deleted there", staleAt("1", 40), nothing, nothing, ""},
		}},
		{"the source of a joining cell", in, normal, normal, gone, "cell-a", []moved{
			{"not begun", nothing, nothing, active("1"), "1"},
			{"copied", frozenAs("2"), nothing, frozenAs("2"), "2"},
			{"copied, and the backup is late", frozenAs("2"), nothing, active("1"), "2"},
			{"changed while frozen", frozenAs("2"), nothing, frozenAs("3"), "3"},
			{"committed", frozenAs("2"), nothing, nothing, "2"},
			{"activated, and the backup is late", active("3"), nothing, frozenAs("2"), "3"},
		}},
		{"a cell from which the slot moved on before", normal, normal, normal, "cell-b", "cell-b", []moved{
			{"it is there", staleAt("1", 40), active("2"), nothing, "2"},
			{"deleted since", staleAt("1", 40), nothing, nothing, ""},
			{"deleted since, and the backup is late", staleAt("1", 60), nothing, nothing, ""},
			{"deleted since, with another stale copy", staleAt("1", 60), staleAt("0", 0), nothing, ""},
			{"deleted since, and its copy was not removed yet", nothing, nothing, active("1"), ""},
			{"it is there, and its copy was not removed yet", nothing, active("2"), active("1"), "2"},
		}},
	} {
		t.Run(change.name, func(t *testing.T) {
			w.wipe(t)
			states := map[string]slots.State{"cell-a": change.a, "cell-b": change.b, gone: change.c}
			before := w.compileAs(t, 10, states)
			states[gone] = slots.Failed
			after := w.compileAs(t, 11, states)
			survivors := maps.Clone(w.stores)
			delete(survivors, gone)
			taken := map[string]bool{}
			objects := make([]string, len(change.cases))
			for i, c := range change.cases {
				objects[i] = nameFor(before, change.old, change.new, taken)
				w.store(t, "cell-a", objects[i], c.a)
				w.store(t, "cell-b", objects[i], c.b)
				w.storeCopy(t, before, objects[i], c.copy)
			}
			promotion := Promotion{Topology: after, Failed: gone, Stores: survivors, Term: term}
			for range 2 { // the second run changes nothing
				if _, err := promotion.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for i, c := range change.cases {
				if got, problem := w.visible(t, after, objects[i]); got != c.want || problem != "" {
					t.Errorf("%s: reads %q, want %q %s", c.name, got, c.want, problem)
				}
			}
			w.noWorks(t, after)
		})
	}
	w.wipe(t)
}

// moved is an object that was moving when the cell failed.
type moved struct {
	name string
	// a and b are what the surviving cells have, and copy is that of the failed cell.
	a, b, copy found
	// want is what users read afterwards.
	want string
}

func (w *world) compileAs(t *testing.T, epoch int64, states map[string]slots.State) *slots.Map {
	t.Helper()
	var list []slots.Cell
	for name, state := range states {
		list = append(list, slots.Cell{Name: name, Weight: 1, State: state})
	}
	m, err := slots.Compile(epoch, list)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// nameFor returns a name that has not been used and whose slot has the given owners. Its backup cell is the third
// cell, or the second.
func nameFor(m *slots.Map, old, new string, taken map[string]bool) string {
	for i := 0; ; i++ {
		name := fmt.Sprintf("moved-%d", i)
		if route := m.Route(slots.Of(metav1.NamespaceDefault, name)); m.Name(route.Old) == old && m.Name(route.New) == new && !taken[name] {
			taken[name] = true
			return name
		}
	}
}

// lostName returns a name that has not been used, whose slot a cell takes over from a lost one.
func (w *world) lostName(t testing.TB, failed *slots.Map, lost, backupCell string, taken map[string]bool) string {
	t.Helper()
	before := w.compile(t, failed.Epoch()-1)
	for {
		name := nameFor(failed, backupCell, backupCell, taken)
		if slot := slots.Of(metav1.NamespaceDefault, name); before.Name(before.Route(slot).New) == lost {
			return name
		}
	}
}

const configMaps = "configmaps/" + metav1.NamespaceDefault + "/"

func (f found) value(name string) []byte {
	metadata := map[string]any{"name": name, "namespace": metav1.NamespaceDefault, "uid": name}
	switch f.status {
	case handover.Frozen:
		metadata["labels"] = map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrating}
	case handover.Moved:
		metadata["labels"] = map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrated}
		metadata["annotations"] = map[string]string{names.CopiedAtAnnotation: fmt.Sprintf("%s/%d", gone, f.at)}
	}
	value, err := json.Marshal(map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": map[string]string{"text": f.text}})
	if err != nil {
		panic(err)
	}
	return value
}

// store puts an object into a cell. A stale copy has a stale Work.
func (w *world) store(t *testing.T, cell, name string, f found) {
	t.Helper()
	store := w.stores[cell]
	if f.status == handover.Absent {
		return
	}
	operations := []clientv3.Op{cellstore.Put(store.Key(configMaps+name), f.value(name))}
	if f.status == handover.Moved {
		work := fmt.Sprintf(`{"kind":"Work","apiVersion":"work.karmada.io/v1alpha1","metadata":{"name":%q,"namespace":"karmada-es-m","labels":{%q:"migrated",%q:%q}}}`,
			name, names.RebalanceStatusLabel, slots.HintLabel, strconv.Itoa(int(slots.Of(metav1.NamespaceDefault, name))))
		operations = append(operations, cellstore.Put(store.Key(works+name), []byte(work)))
	}
	if _, err := store.Txn(t.Context(), term, nil, operations...); err != nil {
		t.Fatal(err)
	}
}

const works = "work.karmada.io/works/karmada-es-m/"

// storeCopy puts the copy of an object of the failed cell into its backup cell, and the progress into all backup cells.
func (w *world) storeCopy(t *testing.T, before *slots.Map, name string, f found) {
	t.Helper()
	for cell, store := range w.stores {
		if cell == gone {
			continue
		}
		index, _ := before.Index(gone)
		scope := make([]byte, slots.Count/8)
		for slot := range slots.Slot(slots.Count) {
			if before.Name(before.Route(slot).BackupOf(index)) == cell {
				scope[slot/8] |= 1 << (slot % 8)
			}
		}
		operations := []clientv3.Op{
			cellstore.Put("/cellplane/backup-progress/"+gone, fmt.Appendf(nil, `{"revision":%d}`, reached)),
			cellstore.Put("/cellplane/backup-scope/"+gone, scope),
		}
		object, err := cellstore.Parse(f.value(name))
		if err != nil {
			t.Fatal(err)
		}
		at := backup.CellFor(before, index, object)
		if at == slots.None {
			at = before.Route(slots.Of(metav1.NamespaceDefault, name)).New // it became the owner after it had been the backup cell
		}
		if f.status != handover.Absent && before.Name(at) == cell {
			operations = append(operations, cellstore.Put(backup.Prefix(gone)+configMaps+name, f.value(name)))
		}
		if _, err := store.Txn(t.Context(), term, nil, operations...); err != nil {
			t.Fatal(err)
		}
	}
}

// visible returns what users read of an object, and what is wrong about it.
func (w *world) visible(t *testing.T, m *slots.Map, name string) (text, problem string) {
	t.Helper()
	route := m.Route(slots.Of(metav1.NamespaceDefault, name))
	statuses := map[string]handover.Status{}
	texts := map[string]string{}
	for cell, store := range w.stores {
		kv, _, err := store.Get(t.Context(), store.Key(configMaps+name))
		if err != nil {
			t.Fatal(err)
		}
		statuses[cell] = statusOf(kv)
		var object struct{ Data map[string]string }
		if kv.ModRevision != 0 {
			if err := json.Unmarshal(kv.Value, &object); err != nil {
				t.Fatal(err)
			}
		}
		texts[cell] = object.Data["text"]
	}
	old, new := m.Name(route.Old), m.Name(route.New)
	if statuses[new] == handover.Moved {
		problem = "a stale copy has its key"
	}
	if !route.Moving() && statuses[new] == handover.Frozen {
		problem = "it stays frozen"
	}
	switch {
	case statuses[new] == handover.Active:
		return texts[new], problem
	case statuses[old] == handover.Active || statuses[old] == handover.Frozen:
		return texts[old], problem
	default:
		return texts[new], problem
	}
}

// noWorks expects no stale Works in slots that a cell owns.
func (w *world) noWorks(t *testing.T, m *slots.Map) {
	t.Helper()
	for cell, store := range w.stores {
		index, _ := m.Index(cell)
		for kv, err := range store.Range(t.Context(), store.Key(works), 0) {
			if err != nil {
				t.Fatal(err)
			}
			object, err := cellstore.Parse(kv.Value)
			if err != nil {
				t.Fatal(err)
			}
			if _, slot := cellstore.Classify(object); cell != gone && m.Route(slot).New == index {
				t.Errorf("cell %s still has the Work %s", cell, kv.Key)
			}
		}
	}
}

// wipe removes what these tests have stored, and all copies.
func (w *world) wipe(t testing.TB) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(w.stores)) {
		store := w.stores[name]
		operations := backup.Wipe()
		for _, prefix := range []string{store.Key(configMaps), store.Key(bindings), store.Key(works)} {
			operations = append(operations, clientv3.OpDelete(prefix, clientv3.WithPrefix()))
		}
		if _, err := store.Txn(t.Context(), term, nil, operations...); err != nil {
			t.Fatal(err)
		}
	}
}
