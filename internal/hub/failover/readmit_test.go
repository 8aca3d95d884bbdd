package failover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testReturnAtOnce has a cell fail and return before its slots were taken over, with and without a restart of the hub manager between: after its
// identity was revoked, or before that was recorded. What the cell stored after its last copy was made is not lost.
func (w *world) testReturnAtOnce(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("hub manager restarted %t", restarted), func(t *testing.T) { w.returnAtOnce(t, restarted, true) })
	}
	t.Run("before it is fenced", func(t *testing.T) { w.returnAtOnce(t, true, false) })
}

func (w *world) returnAtOnce(t *testing.T, restarted, fenced bool) {
	w.wipe(t)
	defer w.wipe(t)
	const plane = "cell-b"
	b := newFailedCell(t)
	lost := b.cell.Name
	w = w.renamed(plane, lost)
	states := func(state slots.State) map[string]slots.State {
		return map[string]slots.State{"cell-a": slots.Normal, lost: state, "cell-c": slots.Normal}
	}
	healthy := w.compileAs(t, 30, states(slots.Normal))
	early, late, deleted := nameIn(healthy, lost, "early"), nameIn(healthy, lost, "late"), nameIn(healthy, lost, "deleted")
	w.put(t, healthy, early, "one")
	w.put(t, healthy, deleted, "one")
	stop := w.startBackup(t, healthy)
	w.verified(t, healthy)

	// It fails. Its identity is revoked, and nothing is promoted.
	failed := w.compileAs(t, 31, states(slots.Failed))
	w.controller.Set(failed)
	if err := w.controller.Stop(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	w.put(t, healthy, late, "acknowledged")
	w.put(t, healthy, early, "two")
	if err := w.clients[lost].CoreV1().ConfigMaps(metav1.NamespaceDefault).Delete(t.Context(), deleted, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.Open, b.Fence = w.open, w.fence(t, lost, plane)
	if fenced {
		b.set(t, metav1.Condition{Type: names.CellFenced, Status: metav1.ConditionTrue, Reason: reasonFenced})
	} else {
		b.stopBeforeFenced(t, failed)
	}
	if restarted {
		stop()
		w.controller = &backup.Controller{Term: term, Open: w.open}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.controller.Run(ctx) }()
		stop = func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	defer func() { stop() }()

	b.Copied, b.Stopped, b.Follow = w.controller.WaitCopied, w.controller.Stop, w.controller.Set
	joining := w.compileAs(t, 32, states(slots.In))
	if err := b.Readmit(t.Context(), joining, lost); err != nil {
		t.Fatal(err)
	}
	w.read(t, failed, early, "two")
	w.read(t, failed, late, "acknowledged")
	w.gone(t, failed, deleted)
	if saved := w.savedFiles(t, b.StateDir); len(saved) != 1 {
		t.Errorf("%v were saved, want the snapshot alone", saved)
	}
	if cell := b.read(t); !isReadmitted(cell) || meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellPromoted) {
		t.Errorf("the conditions of the returned cell are %+v", cell.Status.Conditions)
	}
	returned, err := b.Fence(t.Context(), lost)
	if err != nil {
		t.Fatal(err)
	}
	if floor, err := returned.Floor(t.Context()); err != nil || floor != joining.Epoch() {
		t.Errorf("the returned cell accepts epoch %d and later (%v), want %d", floor, err, joining.Epoch())
	}

	// Backups follow the topology in which it joins.
	w.controller.Set(joining)
	testenv.Eventually(t, "the returned cell is backed up", func(context.Context) (bool, error) {
		return w.controller.States()[lost].Complete, nil
	})
	w.verified(t, joining)
}

// stopBeforeFenced has a hub manager stop when it has closed the failed cell and revoked its identity, and records that.
func (b *failedCell) stopBeforeFenced(t *testing.T, failed *slots.Map) {
	t.Helper()
	stopped := *b.Takeover
	stopped.Client = interceptor.NewClient(b.hub.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if content, err := patch.Data(object); err != nil || bytes.Contains(content, []byte(reasonUnfenced)) || bytes.Contains(content, []byte(reasonFenced)) {
				return errUnreachable
			}
			return c.SubResource(sub).Patch(ctx, object, patch, options...)
		},
	})
	if err := stopped.Do(t.Context(), failed, b.cell.Name); !errors.Is(err, errUnreachable) {
		t.Fatalf("the hub manager did not stop: %v", err)
	}
	if meta.IsStatusConditionTrue(b.read(t).Status.Conditions, names.CellFenced) {
		t.Fatal("the hub manager has recorded that the cell is fenced")
	}
}

// renamed returns the world with another name for one of its cells. The hub that tests share has Cells of others.
func (w *world) renamed(from, to string) *world {
	other := &world{cells: w.cells, clients: maps.Clone(w.clients), stores: maps.Clone(w.stores)}
	store := *w.stores[from]
	store.Cell = to
	other.stores[to], other.clients[to] = &store, w.clients[from]
	delete(other.stores, from)
	delete(other.clients, from)
	other.controller = &backup.Controller{Term: term, Open: other.open}
	return other
}

func (w *world) open(_ context.Context, cell string) (*cellstore.Store, error) {
	if store := w.stores[cell]; store != nil {
		return store, nil
	}
	return nil, errUnreachable
}

// fence returns the fence of one of the cells, which has another name.
func (w *world) fence(t *testing.T, name, plane string) func(context.Context, string) (*fence.Cell, error) {
	t.Helper()
	var of *controlplane.ControlPlane
	for _, cell := range w.cells {
		if cell.Name() == plane {
			of = cell
		}
	}
	proxy, err := of.FrontProxy()
	if err != nil {
		t.Fatal(err)
	}
	endpoint := fleet.Endpoint{Server: of.URL()}
	for file, content := range map[string]*[]byte{of.CAFile(): &endpoint.CA, proxy.CertFile: &endpoint.Cert, proxy.KeyFile: &endpoint.Key} {
		if *content, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	connected, err := fence.Connect(name, endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return func(_ context.Context, cell string) (*fence.Cell, error) {
		if cell != name {
			return nil, errUnreachable
		}
		return connected, nil
	}
}

// gone checks that the owner of an object does not have it.
func (w *world) gone(t *testing.T, m *slots.Map, name string) {
	t.Helper()
	cell := m.Name(m.Route(slots.Of(metav1.NamespaceDefault, name)).New)
	kv, _, err := w.stores[cell].Get(t.Context(), w.stores[cell].Key("configmaps/default/"+name))
	if err != nil || kv.ModRevision != 0 {
		t.Errorf("%s is in cell %s again (%v)", name, cell, err)
	}
}

// savedFiles returns the files below a directory.
func (w *world) savedFiles(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		var inside []os.DirEntry
		if inside, err = os.ReadDir(dir + "/" + entry.Name()); err != nil {
			break
		}
		for _, file := range inside {
			files = append(files, entry.Name()+"/"+file.Name())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return files
}
