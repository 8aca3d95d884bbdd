package groups

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

func bindingIn(name string, together, apart string, clusters ...string) *workv1alpha2.ResourceBinding {
	b := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	b.Spec.WorkloadAffinityGroups = &workv1alpha2.WorkloadAffinityGroups{AffinityGroup: together, AntiAffinityGroup: apart}
	for _, cluster := range clusters {
		b.Spec.Clusters = append(b.Spec.Clusters, workv1alpha2.TargetCluster{Name: cluster})
	}
	return b
}

// TestEntries checks which bindings are recorded.
func TestEntries(t *testing.T) {
	g := group{"shop", "app=web"}
	moved := bindingIn("moved", "", g.label, "a")
	moved.Labels = map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrated}
	recorded := moved.DeepCopy()
	recorded.Name = "recorded"
	record := g.record()
	record.Spec.Workloads = []cellplanev1alpha1.GroupedWorkload{{Cell: "cell-b", Binding: "recorded", Clusters: []string{"a"}, Apart: true}}
	moving := bindingIn("moving", "", g.label, "a")
	moving.Labels = map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrating}
	deleted := bindingIn("deleted", "", g.label, "a")
	deleted.DeletionTimestamp = &metav1.Time{}
	clusterScoped := bindingIn("cluster", "", g.label, "a")
	clusterScoped.Namespace = ""
	for _, test := range []struct {
		binding         *workv1alpha2.ResourceBinding
		recorded        bool
		together, apart bool
	}{
		{bindingIn("apart", "", g.label, "a"), true, false, true},
		{bindingIn("together", g.label, "", "a"), true, true, false},
		{bindingIn("both", g.label, g.label, "a"), true, true, true},
		{moving, true, false, true},
		{moved, true, false, true},
		{recorded, false, false, false},
		{deleted, false, false, false},
		{clusterScoped, false, false, false},
		{bindingIn("without clusters", "", g.label), false, false, false},
		{bindingIn("another group", "app=api", "", "a"), false, false, false},
		{nil, false, false, false},
	} {
		entry, recorded := entryOf("cell-a", record, test.binding)
		if recorded != test.recorded || entry.Together != test.together || entry.Apart != test.apart {
			t.Errorf("%+v: recorded %v as %+v", test.binding, recorded, entry)
		}
	}
}

// TestConflict checks which clusters a decision must not add.
func TestConflict(t *testing.T) {
	g := group{"shop", "app=web"}
	for _, test := range []struct {
		name            string
		together, apart []string
		before, after   *workv1alpha2.ResourceBinding
		want            string
	}{
		{"apart, taken", nil, []string{"a"}, nil, bindingIn("x", "", g.label, "a", "b"), "a"},
		{"apart, free", nil, []string{"c"}, nil, bindingIn("x", "", g.label, "a", "b"), ""},
		{"apart, had it before", nil, []string{"a"}, bindingIn("x", "", g.label, "a"), bindingIn("x", "", g.label, "a"), ""},
		{"together, first", nil, nil, nil, bindingIn("x", g.label, "", "a"), ""},
		{"together, there", []string{"a", "b"}, nil, nil, bindingIn("x", g.label, "", "a"), ""},
		{"together, elsewhere", []string{"b"}, nil, nil, bindingIn("x", g.label, "", "a"), "a"},
		{"apart from those that stay together", []string{"b"}, nil, nil, bindingIn("x", "", g.label, "a"), ""},
	} {
		if got := conflict(g, test.together, test.apart, test.before, test.after); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// engineModel is one engine: its bindings, and the decision that it is writing.
type engineModel struct {
	cell     string
	bindings map[string]*workv1alpha2.ResourceBinding
	pending  *workv1alpha2.ResourceBinding
	// read is the record as the engine has last read it.
	read    *cellplanev1alpha1.WorkloadGroup
	version int
}

func (e *engineModel) mine(record *cellplanev1alpha1.WorkloadGroup) []cellplanev1alpha1.GroupedWorkload {
	var mine []cellplanev1alpha1.GroupedWorkload
	for _, b := range e.bindings {
		if e.pending == nil || e.pending.Name != b.Name {
			if entry, recorded := entryOf(e.cell, record, b); recorded {
				mine = append(mine, entry)
			}
		}
	}
	if entry, recorded := entryOf(e.cell, record, e.pending); recorded {
		mine = append(mine, entry)
	}
	return mine
}

// TestNeverInOneCluster has engines decide, write, crash, correct and move workloads in any order. No two workloads that stay apart are ever in
// one cluster.
func TestNeverInOneCluster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newGroupWorld()
		for step := range 150 {
			e := w.engines[rapid.IntRange(0, len(w.engines)-1).Draw(t, "engine")]
			switch action := rapid.SampledFrom(actions).Draw(t, "action"); action {
			case "read":
				e.read, e.version = w.record.DeepCopy(), w.version
			case "decide":
				w.decide(e, fmt.Sprintf("w%d", step), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "cluster"))
			case "write":
				if e.pending != nil {
					e.bindings[e.pending.Name], e.pending = e.pending, nil
				}
			case "crash":
				e.pending = nil
			case "correct":
				e.read, e.version = w.record.DeepCopy(), w.version
				w.commit(e)
			case "delete":
				if name := e.first(false); name != "" {
					delete(e.bindings, name)
				}
			case "move":
				w.move(e, w.engines[rapid.IntRange(0, len(w.engines)-1).Draw(t, "to")])
			case "sweep":
				w.sweep(e)
			}
			w.check(t)
		}
	})
}

// TestMovedTwice moves a workload on before the engine of its first cell has noticed, and before that of its last cell has recorded it.
func TestMovedTwice(t *testing.T) {
	w := newGroupWorld()
	last, first, second := w.engines[0], w.engines[1], w.engines[2]
	correct := func(e *engineModel) {
		e.read, e.version = w.record.DeepCopy(), w.version
		w.commit(e)
	}
	recordedBy := func(want ...string) {
		t.Helper()
		var cells []string
		for i := range w.record.Spec.Workloads {
			cells = append(cells, w.record.Spec.Workloads[i].Cell)
		}
		if !slices.Equal(cells, want) {
			t.Errorf("recorded by %v, want %v", cells, want)
		}
	}
	w.decide(first, "web", "a")
	first.bindings["web"], first.pending = first.pending, nil
	w.move(first, second)
	correct(second)
	recordedBy(first.cell, second.cell)
	w.move(second, last)
	w.sweep(first) // too early: the engine has not removed its entry
	correct(second)
	recordedBy(first.cell)
	correct(first)
	recordedBy(first.cell)
	w.sweep(second)
	correct(last)
	correct(first)
	recordedBy(last.cell)
}

var actions = []string{"read", "read", "decide", "decide", "decide", "write", "write", "crash", "correct", "delete", "move", "sweep"}

// groupWorld is a group in several cells, and its record.
type groupWorld struct {
	record  *cellplanev1alpha1.WorkloadGroup
	version int
	engines []*engineModel
}

var modelGroup = group{"shop", "app=web"}

func newGroupWorld() *groupWorld {
	w := &groupWorld{record: modelGroup.record()}
	for i := range 3 {
		w.engines = append(w.engines, &engineModel{cell: fmt.Sprintf("cell-%d", i), bindings: map[string]*workv1alpha2.ResourceBinding{}, read: modelGroup.record()})
	}
	return w
}

// commit writes the part of an engine if nobody has written since it read.
func (w *groupWorld) commit(e *engineModel) bool {
	if e.version != w.version {
		return false
	}
	next := e.read.DeepCopy()
	if replace(next, e.cell, e.mine(next)) {
		w.record, w.version = next, w.version+1
		e.read, e.version = next.DeepCopy(), w.version
	}
	return true
}

// decide places a new workload in a cluster, if neither the engine's own workloads nor the record are against it.
func (w *groupWorld) decide(e *engineModel, name, cluster string) {
	if e.pending != nil || slices.ContainsFunc(slices.Collect(maps.Values(e.bindings)), func(b *workv1alpha2.ResourceBinding) bool {
		return slices.Contains(clustersOf(b), cluster)
	}) {
		return
	}
	next := bindingIn(name, "", modelGroup.label, cluster)
	if _, apart := others(e.read, e.cell, name); conflict(modelGroup, nil, apart, nil, next) != "" {
		return
	}
	if e.pending = next; !w.commit(e) {
		e.pending = nil // decided again later
	}
}

// move moves a workload to another cell: its copy becomes active when the original is given up.
func (w *groupWorld) move(from, to *engineModel) {
	name := from.first(false)
	if name == "" || from == to || from.pending != nil {
		return
	}
	left := from.bindings[name].DeepCopy()
	left.Labels = map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrated}
	to.bindings[name], from.bindings[name] = from.bindings[name], left
}

// sweep removes what has moved away, hours after the move: another cell has recorded it, and the engine has removed its own entry since.
func (w *groupWorld) sweep(e *engineModel) {
	name := e.first(true)
	if name == "" || slices.ContainsFunc(w.record.Spec.Workloads, func(entry cellplanev1alpha1.GroupedWorkload) bool {
		return entry.Cell == e.cell && entry.Binding == name
	}) {
		return
	}
	if _, kept := entryOf(e.cell, w.record, e.bindings[name]); !kept {
		delete(e.bindings, name)
	}
}

func (w *groupWorld) check(t *rapid.T) {
	in := map[string]string{}
	for _, e := range w.engines {
		for name, b := range e.bindings {
			if moved(b) {
				continue
			}
			for _, cluster := range clustersOf(b) {
				if other, taken := in[cluster]; taken && other != name {
					t.Fatalf("%s and %s are both in cluster %s", name, other, cluster)
				}
				in[cluster] = name
			}
		}
	}
}

// first returns the first workload of an engine that has moved away, or that has not; "" if there is none.
func (e *engineModel) first(away bool) string {
	for _, name := range slices.Sorted(maps.Keys(e.bindings)) {
		if moved(e.bindings[name]) == away {
			return name
		}
	}
	return ""
}

func moved(b *workv1alpha2.ResourceBinding) bool {
	return b.Labels[names.RebalanceStatusLabel] == names.RebalanceMigrated
}
