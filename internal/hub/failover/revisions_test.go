package failover

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
)

// testOwnRevisions loses a cell with many workloads. Some have bindings, and stale Works in the cells that take over.
// Every change that an engine or a client must see has its own revision, so that a resumed watch misses nothing; only
// frozen objects share revisions. No template is activated before its binding.
func (w *world) testOwnRevisions(t *testing.T) {
	w.wipe(t)
	defer w.wipe(t)
	const lost, backupCell, bound, single = gone, "cell-a", 150, 50
	failed := w.compile(t, 40, lost)
	store := w.stores[backupCell]
	var operations []clientv3.Op
	taken, withBinding := map[string]bool{}, map[string]bool{}
	for i := range bound + single {
		name := w.lostName(t, failed, gone, backupCell, taken)
		operations = append(operations, cellstore.Put(backup.Prefix(lost)+configMaps+name, active("1").value(name)))
		if i < bound {
			withBinding[name] = true
			binding := fmt.Sprintf(`{"kind":"ResourceBinding","apiVersion":"work.karmada.io/v1alpha2","metadata":{"name":"%s-configmap","namespace":%q,"uid":"%s-b"},"spec":{}}`, name, metav1.NamespaceDefault, name)
			operations = append(operations, cellstore.Put(backup.Prefix(lost)+bindings+name+"-configmap", []byte(binding)))
			w.store(t, backupCell, name, staleAt("0", 0))
		}
	}
	w.putAll(t, backupCell, operations)
	before := w.revisions(t)
	promotion := Promotion{Topology: failed, Failed: lost, Stores: w.without(lost), Term: term}
	if promoted, err := promotion.Run(t.Context()); err != nil || promoted.Objects != 2*bound+single {
		t.Fatalf("%d objects were promoted: %v", promoted.Objects, err)
	}
	history := storetest.Since(t, store, before[backupCell])
	if seen := storetest.Alone(t, history, isSeen); seen != 3*bound+single { // with the Works
		t.Errorf("%d changes have their own revision", seen)
	}
	var lastBinding, firstTemplate int64
	for _, change := range history {
		switch {
		case !isSeen(change):
		case strings.HasPrefix(change.Key, bindings):
			lastBinding = change.Revision
		case withBinding[strings.TrimPrefix(change.Key, configMaps)] && firstTemplate == 0:
			firstTemplate = change.Revision
		}
	}
	if lastBinding == 0 || firstTemplate < lastBinding {
		t.Errorf("the first template is activated at %d, and the last binding at %d", firstTemplate, lastBinding)
	}
}

// testRevisionsOfWorkloads loses a cell with workloads that no policy selects any more. They have no bindings, but still their revisions. An engine removes a revision without a
// workload, so it must not see one before its workload is there.
func (w *world) testRevisionsOfWorkloads(t *testing.T) {
	w.wipe(t)
	defer w.wipe(t)
	const lost, backupCell, workloads = gone, "cell-a", 100
	const stateful, revisions = "statefulsets/" + metav1.NamespaceDefault + "/", "controllerrevisions/" + metav1.NamespaceDefault + "/"
	failed := w.compile(t, 45, lost)
	store := w.stores[backupCell]
	var operations []clientv3.Op
	taken := map[string]bool{}
	for range workloads {
		name := w.lostName(t, failed, gone, backupCell, taken)
		workload := fmt.Sprintf(`{"kind":"StatefulSet","apiVersion":"apps/v1","metadata":{"name":%[1]q,"namespace":%[2]q,"uid":"%[1]s-w"},"spec":{}}`, name, metav1.NamespaceDefault)
		revision := fmt.Sprintf(`{"kind":"ControllerRevision","apiVersion":"apps/v1","metadata":{"name":%[1]q,"namespace":%[2]q,"uid":"%[1]s-r","labels":{%[3]q:"%[1]s-w"}},"revision":1}`,
			name, metav1.NamespaceDefault, names.RevisionOfLabel)
		operations = append(operations, cellstore.Put(backup.Prefix(lost)+stateful+name, []byte(workload)), cellstore.Put(backup.Prefix(lost)+revisions+name, []byte(revision)))
	}
	w.putAll(t, backupCell, operations)
	defer func() {
		var keys []string
		for name := range taken {
			keys = append(keys, store.Key(stateful+name), store.Key(revisions+name))
		}
		if err := removeKeys(t.Context(), store, term, keys); err != nil {
			t.Error(err)
		}
	}()
	before := w.revisions(t)
	promotion := Promotion{Topology: failed, Failed: lost, Stores: w.without(lost), Term: term}
	if promoted, err := promotion.Run(t.Context()); err != nil || promoted.Objects != 2*workloads {
		t.Fatalf("%d objects were promoted: %v", promoted.Objects, err)
	}
	there, seen := map[string]bool{}, 0
	for _, change := range storetest.Since(t, store, before[backupCell]) {
		switch name := change.Key[strings.LastIndexByte(change.Key, '/')+1:]; {
		case strings.HasPrefix(change.Key, stateful):
			there[name] = true
		case !strings.HasPrefix(change.Key, revisions) || statusOf(cellstore.KV{Value: change.Value, ModRevision: change.Revision}) == handover.Frozen:
		case !there[name]:
			t.Fatalf("the revision of %s is there before its workload", name)
		default:
			seen++
		}
	}
	if seen != workloads {
		t.Errorf("%d revisions were activated, want %d", seen, workloads)
	}
}

const bindings = "work.karmada.io/resourcebindings/" + metav1.NamespaceDefault + "/"

// isSeen reports whether somebody must see a change. Frozen objects are seen when they are activated.
func isSeen(change storetest.Change) bool {
	if len(change.Value) == 0 {
		return isFederated(change)
	}
	return isFederated(change) && statusOf(cellstore.KV{Value: change.Value, ModRevision: change.Revision}) != handover.Frozen
}

// isFederated reports whether a change is about objects of these tests, and not of the API server itself.
func isFederated(change storetest.Change) bool {
	return strings.HasPrefix(change.Key, configMaps) || strings.HasPrefix(change.Key, bindings) || strings.HasPrefix(change.Key, works)
}

func (w *world) revisions(t *testing.T) map[string]int64 {
	t.Helper()
	now := map[string]int64{}
	for cell, store := range w.stores {
		revision, err := store.Revision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		now[cell] = revision
	}
	return now
}
