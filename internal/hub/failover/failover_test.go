package failover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellcheck"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

const (
	term    = cellstore.Term(7)
	objects = 60
)

// world is three cells and the controller that backs them up.
type world struct {
	cells      []*controlplane.ControlPlane
	clients    map[string]kubernetes.Interface
	stores     map[string]*cellstore.Store
	controller *backup.Controller
}

func newWorld(t testing.TB) *world {
	w := &world{clients: map[string]kubernetes.Interface{}, stores: map[string]*cellstore.Store{}}
	w.cells = testenv.StartFederation(t, local.Spec{Cells: 3, WithoutHub: true}).Cells
	for _, cell := range w.cells {
		config, err := cell.AdminConfig()
		if err != nil {
			t.Fatal(err)
		}
		config.QPS = -1
		w.clients[cell.Name()] = kubernetes.NewForConfigOrDie(config)
		store := storetest.For(t, cell)
		w.stores[cell.Name()] = store
		if err := store.RaiseTerm(t.Context(), term); err != nil {
			t.Fatal(err)
		}
	}
	w.controller = &backup.Controller{Term: term, Open: func(_ context.Context, cell string) (*cellstore.Store, error) { return w.stores[cell], nil }}
	return w
}

func (w *world) compile(t testing.TB, epoch int64, failed ...string) *slots.Map {
	t.Helper()
	var list []slots.Cell
	for _, cell := range w.cells {
		c := slots.Cell{Name: cell.Name(), Weight: 1}
		for _, name := range failed {
			if name == c.Name {
				c.State = slots.Failed
			}
		}
		list = append(list, c)
	}
	m, err := slots.Compile(epoch, list)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (w *world) put(t *testing.T, m *slots.Map, name, text string) {
	t.Helper()
	cell := m.Name(m.Route(slots.Of(metav1.NamespaceDefault, name)).New)
	maps := w.clients[cell].CoreV1().ConfigMaps(metav1.NamespaceDefault)
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"text": text}}
	if _, err := maps.Update(t.Context(), wanted, metav1.UpdateOptions{}); err == nil {
		return
	}
	if _, err := maps.Create(t.Context(), wanted, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// verified waits until the checker finds nothing.
func (w *world) verified(t *testing.T, m *slots.Map) cellcheck.Report {
	t.Helper()
	report, err := cellcheck.Check(t.Context(), m, w.stores, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range report.Findings {
		t.Error(finding)
	}
	if t.Failed() {
		t.FailNow()
	}
	return report
}

// startBackup runs the controller until stop is called.
func (w *world) startBackup(t *testing.T, topology *slots.Map) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.controller.Run(ctx) }()
	w.controller.Set(topology)
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestLoss(t *testing.T) {
	w := newWorld(t)
	t.Run("of a cell", w.testLossOfACell)
	t.Run("of two in close succession", w.testCloseSuccession)
	t.Run("of a backup cell for a while", w.testUnreachable)
	t.Run("during a change", w.testDuringAChange)
	t.Run("own revisions", w.testOwnRevisions)
	t.Run("revisions of workloads", w.testRevisionsOfWorkloads)
	t.Run("a copy that changes", w.testChangingCopy)
	t.Run("returning", w.testReturnAtOnce)
}

// testLossOfACell backs a cell up, loses it, takes it over, and empties it when it returns.
func (w *world) testLossOfACell(t *testing.T) {
	healthy := w.compile(t, 1)
	for i := range objects {
		w.put(t, healthy, fmt.Sprintf("early-%d", i), "one")
	}
	ctx := t.Context()
	defer w.startBackup(t, healthy)()

	// Objects that existed before and later changes are copied: created, changed and deleted.
	if report := w.verified(t, healthy); report.Objects < objects || report.Copies != report.Objects {
		t.Fatalf("%d objects have %d copies", report.Objects, report.Copies)
	}
	for i := range objects {
		w.put(t, healthy, fmt.Sprintf("late-%d", i), "one")
		w.put(t, healthy, fmt.Sprintf("early-%d", i), "two")
	}
	owner := healthy.Name(healthy.Route(slots.Of(metav1.NamespaceDefault, "late-0")).New)
	if err := w.clients[owner].CoreV1().ConfigMaps(metav1.NamespaceDefault).Delete(ctx, "late-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	before := w.verified(t, healthy)
	if before.Objects < 2*objects-1 {
		t.Fatalf("the checker saw %d objects", before.Objects)
	}

	// The cell is lost. Its API server still accepts a write that is not copied.
	const lost = "cell-b"
	failed := w.compile(t, 2, lost)
	w.controller.Set(failed)
	unlucky := nameIn(healthy, lost, "unlucky")
	testenv.Eventually(t, "the controller no longer backs the lost cell up", func(context.Context) (bool, error) {
		_, watched := w.controller.States()[lost]
		return !watched, nil
	})
	w.put(t, healthy, unlucky, "not copied")
	undeleted := ownedName(healthy, lost, "late", 1)
	if err := w.clients[lost].CoreV1().ConfigMaps(metav1.NamespaceDefault).Delete(ctx, undeleted, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	stores := map[string]*cellstore.Store{}
	for name, store := range w.stores {
		if name != lost {
			stores[name] = store
		}
	}
	promotion := Promotion{Topology: failed, Failed: lost, Stores: stores, Term: term}
	promoted, err := promotion.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(promoted.Contested) > 0 || promoted.Objects == 0 {
		t.Errorf("promoted %d objects, contested %v", promoted.Objects, promoted.Contested)
	}
	if again, err := promotion.Run(ctx); err != nil || again.Objects != 0 {
		t.Errorf("promoting again promoted %d objects (%v)", again.Objects, err)
	}
	for i := range objects {
		w.read(t, failed, fmt.Sprintf("early-%d", i), "two")
		if i > 0 {
			w.read(t, failed, fmt.Sprintf("late-%d", i), "one")
		}
	}
	if after := w.verified(t, failed); after.Objects != before.Objects {
		t.Errorf("there are %d objects, there were %d", after.Objects, before.Objects)
	}

	w.testDeposed(t, failed, stores)
	w.testReturn(t, lost, unlucky, undeleted, stores)
}

// testDeposed attacks with a promotion of an earlier term.
func (w *world) testDeposed(t *testing.T, failed *slots.Map, stores map[string]*cellstore.Store) {
	store, name := stores["cell-a"], w.lostName(t, failed, "cell-b", "cell-a", map[string]bool{})
	key := backup.Prefix("cell-b") + configMaps + name
	if _, err := store.Txn(t.Context(), term, nil, cellstore.Put(key, active("forged").value(name))); err != nil {
		t.Fatal(err)
	}
	old := Promotion{Topology: failed, Failed: "cell-b", Stores: stores, Term: term - 1}
	if promoted, err := old.Run(t.Context()); !errors.Is(err, cellstore.ErrFenced) || promoted.Objects != 0 {
		t.Errorf("a hub manager that was deposed promoted %d objects: %v", promoted.Objects, err)
	}
	if _, err := store.Txn(t.Context(), term, nil, cellstore.Delete(key)); err != nil {
		t.Fatal(err)
	}
}

// testPartialSnapshot checks that attempts which fail leave nothing that looks like a complete snapshot, and do not pile up.
func (w *world) testPartialSnapshot(t *testing.T, emptying Emptying) {
	t.Helper()
	emptying.Dir = t.TempDir()
	for range 2 {
		emptying.Now = emptying.Now.Add(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		var result Emptied
		objects := []cellstore.KV{{Key: emptying.Returning.Key("configmaps/shop/a"), Value: []byte("{}")}, {Key: emptying.Returning.Key("\x00"), Value: []byte("{}")}}
		if err := emptying.saveAll(ctx, objects, &result); err == nil {
			t.Error("an object was saved in a file whose name is impossible")
		}
		cancel()
	}
	left, err := os.ReadDir(emptying.Dir)
	if err != nil || len(left) != 1 || !strings.HasSuffix(left[0].Name(), ".partial") {
		t.Errorf("two failed attempts left %v (%v)", left, err)
	}
}

// testReturn has the cell return: objects that no backup has are on disk, and the cell is empty.
func (w *world) testReturn(t *testing.T, lost, unlucky, undeleted string, stores map[string]*cellstore.Store) {
	var list []slots.Cell
	for _, cell := range w.cells {
		c := slots.Cell{Name: cell.Name(), Weight: 1}
		if c.Name == lost {
			c.State = slots.In
		}
		list = append(list, c)
	}
	returning, err := slots.Compile(3, list)
	if err != nil {
		t.Fatal(err)
	}
	emptying := Emptying{Topology: returning, Returning: w.stores[lost], Stores: stores, Term: term, Dir: t.TempDir(), Now: time.Now()}
	w.testDeleted(t, emptying, lost)
	w.testPartialSnapshot(t, emptying)
	before := w.revisions(t)
	emptied, err := emptying.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(emptied.Salvaged) != 1 || !strings.Contains(emptied.Salvaged[0], unlucky) {
		t.Fatalf("salvaged %v, want %s alone", emptied.Salvaged, unlucky)
	}
	if len(emptied.Undeleted) != 1 || !strings.HasSuffix(emptied.Undeleted[0], "/"+undeleted) || emptied.Unsure {
		t.Errorf("the deletions of %v were lost (unsure: %v), want that of %s", emptied.Undeleted, emptied.Unsure, undeleted)
	}
	content, err := os.ReadFile(emptied.Salvaged[0])
	if err != nil || !strings.Contains(string(content), "text: not copied") {
		t.Errorf("what was salvaged reads %q (%v)", content, err)
	}
	for _, file := range append(emptied.Salvaged, emptied.Snapshot, filepath.Dir(emptied.Snapshot)) {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm()&0o077 != 0 || info.Size() == 0 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	if removed := storetest.Alone(t, storetest.Since(t, w.stores[lost], before[lost]), isFederated); removed < emptied.Removed {
		t.Errorf("%d objects were removed, and %d were reported", removed, emptied.Removed)
	}
	left, err := w.clients[lost].CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range left.Items {
		if item.Annotations[names.CopiedFromHubAnnotation] == "" && item.Name != "kube-root-ca.crt" {
			t.Errorf("the cell still has %s", item.Name)
		}
	}
	if again, err := emptying.Run(t.Context()); err != nil || again.Removed != 0 || again.Snapshot != "" {
		t.Errorf("emptying it again removed %d objects (%v)", again.Removed, err)
	}
}

// testDeleted has a user delete an object of the lost cell. It is not saved.
func (w *world) testDeleted(t *testing.T, emptying Emptying, lost string) {
	healthy := w.compile(t, 1)
	name := ""
	for i := 0; name == ""; i++ {
		if early := fmt.Sprintf("early-%d", i); healthy.Name(healthy.Route(slots.Of(metav1.NamespaceDefault, early)).New) == lost {
			name = early
		}
	}
	failed := w.compile(t, 2, lost)
	owner := failed.Name(failed.Route(slots.Of(metav1.NamespaceDefault, name)).New)
	if err := w.clients[owner].CoreV1().ConfigMaps(metav1.NamespaceDefault).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kept, _, err := emptying.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(kept, func(kv cellstore.KV) bool { return strings.HasSuffix(kv.Key, "/"+name) }) {
		t.Errorf("%s is saved, although it was promoted and deleted by a user", name)
	}
}

// testChangingCopy promotes a copy that has changed since it was read, and one that is gone.
func (w *world) testChangingCopy(t *testing.T) {
	ctx := t.Context()
	const lost = "cell-b"
	failed := w.compile(t, 9, lost)
	name := nameIn(failed, "cell-a", "changing")
	store, relative := w.stores["cell-a"], "configmaps/default/"+name
	value := func(text string) []byte {
		return fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"default","uid":"u"},"data":{"text":%q}}`, name, text)
	}
	key := backup.Prefix(lost) + relative
	if _, err := store.Txn(ctx, term, nil, cellstore.Put(key, value("new"))); err != nil {
		t.Fatal(err)
	}
	p := Promotion{Topology: failed, Failed: lost, Stores: w.stores, Term: term}
	old := candidate{copy: cellstore.KV{Key: key, Value: value("old"), ModRevision: 1}, relative: relative, slot: slots.Of(metav1.NamespaceDefault, name), value: value("old")}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if done, err := p.promoteOne(limited, store, old); err != nil || done.Objects != 1 {
		t.Fatalf("promoted %d: %v", done.Objects, err)
	}
	w.read(t, failed, name, "new")
	if done, err := p.promoteOne(limited, store, old); err != nil || done.Objects != 0 {
		t.Errorf("a copy that is gone: promoted %d: %v", done.Objects, err)
	}
	if err := w.clients["cell-a"].CoreV1().ConfigMaps(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) read(t *testing.T, m *slots.Map, name, text string) {
	t.Helper()
	cell := m.Name(m.Route(slots.Of(metav1.NamespaceDefault, name)).New)
	object, err := w.clients[cell].CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if object.Data["text"] != text {
		t.Errorf("%s in %s reads %q, want %q", name, cell, object.Data["text"], text)
	}
}

// ownedName returns the first name with a number that a cell owns, from one on.
func ownedName(m *slots.Map, cell, prefix string, from int) string {
	for i := from; ; i++ {
		if name := fmt.Sprintf("%s-%d", prefix, i); m.Name(m.Route(slots.Of(metav1.NamespaceDefault, name)).New) == cell {
			return name
		}
	}
}

// nameIn returns a name that a cell owns.
func nameIn(m *slots.Map, cell, prefix string) string {
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s-%d", prefix, i)
		if m.Name(m.Route(slots.Of(metav1.NamespaceDefault, name)).New) == cell {
			return name
		}
	}
}
