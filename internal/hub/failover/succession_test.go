package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testCloseSuccession loses a cell, and then one that took over, before its new objects and its lost backups are
// copied again. Objects that no other cell has are found when the second one returns, and no others.
func (w *world) testCloseSuccession(t *testing.T) {
	w.wipe(t)
	defer w.wipe(t)
	const first, second, last = "cell-b", "cell-c", "cell-a"
	healthy := w.compile(t, 20)
	var onlyThere, saved []string
	for i := range objects {
		name := fmt.Sprintf("twice-%d", i)
		w.put(t, healthy, name, "one")
		route := healthy.Route(slots.Of(metav1.NamespaceDefault, name))
		switch owner, backupCell := healthy.Name(route.New), healthy.Name(route.Backup); {
		case owner == second && backupCell == first, owner == first && backupCell == second:
			onlyThere = append(onlyThere, name)
		default:
			saved = append(saved, name)
		}
	}
	if len(onlyThere) == 0 || len(saved) == 0 {
		t.Fatalf("%d objects are lost and %d are saved", len(onlyThere), len(saved))
	}
	w.backUp(t, healthy)

	promote := func(epoch int64, lost string, failed ...string) (*slots.Map, Promoted) {
		topology := w.compile(t, epoch, failed...)
		promotion := Promotion{Topology: topology, Failed: lost, Stores: w.without(failed...), Term: term}
		promoted, err := promotion.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return topology, promoted
	}
	if _, promoted := promote(21, first, first); promoted.Objects == 0 || promoted.Uncovered != 0 {
		t.Errorf("%d objects of the first cell were promoted, and %d of its slots are uncovered", promoted.Objects, promoted.Uncovered)
	}
	left, promoted := promote(22, second, first, second)
	if promoted.Objects == 0 || promoted.Uncovered == 0 {
		t.Errorf("%d objects of the second cell were promoted, and %d slots are uncovered", promoted.Objects, promoted.Uncovered)
	}
	for _, name := range saved {
		w.read(t, left, name, "one")
	}

	returning := w.compileAs(t, 23, map[string]slots.State{first: slots.Failed, second: slots.In, last: slots.Normal})
	emptying := Emptying{Topology: returning, Returning: w.stores[second], Stores: w.without(first, second), Term: term, Dir: t.TempDir(), Now: time.Now()}
	emptied, err := emptying.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, file := range emptied.Salvaged {
		_, name, _ := strings.Cut(strings.TrimSuffix(file, ".yaml"), "configmaps_"+metav1.NamespaceDefault+"_")
		kept = append(kept, name)
	}
	slices.Sort(kept)
	slices.Sort(onlyThere)
	if !slices.Equal(kept, onlyThere) {
		t.Errorf("saved as files: %v, want %v", kept, onlyThere)
	}
}

// backUp backs the cells up once.
func (w *world) backUp(t *testing.T, topology *slots.Map) {
	t.Helper()
	defer w.startBackup(t, topology)()
	testenv.Eventually(t, "all cells are backed up", func(context.Context) (bool, error) {
		states, complete := w.controller.States(), 0
		for _, state := range states {
			if state.Complete && state.Pending == 0 {
				complete++
			}
		}
		return complete == len(w.stores), nil
	})
	w.verified(t, topology)
}

// without returns the stores of the other cells.
func (w *world) without(failed ...string) map[string]*cellstore.Store {
	left := map[string]*cellstore.Store{}
	for name, store := range w.stores {
		if !slices.Contains(failed, name) {
			left[name] = store
		}
	}
	return left
}
