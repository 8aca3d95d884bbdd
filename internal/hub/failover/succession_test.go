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

// testCloseSuccession loses a cell, and then one of those that took over, before anybody has copies of what that one took over, nor of
// what the first one kept for it. Whatever nobody has is found when the second one returns, and nothing else is.
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
		switch owner, keeper := healthy.Name(route.New), healthy.Name(route.Backup); {
		case owner == second && keeper == first, owner == first && keeper == second:
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
		t.Errorf("%d objects of the first cell live on, and nobody vouches for %d of its slots", promoted.Objects, promoted.Uncovered)
	}
	left, promoted := promote(22, second, first, second)
	if promoted.Objects == 0 || promoted.Uncovered == 0 {
		t.Errorf("%d objects of the second cell live on, and %d slots are known to be incomplete", promoted.Objects, promoted.Uncovered)
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
		t.Errorf("kept as files are %v, want %v", kept, onlyThere)
	}
}

// backUp has the cells backed up, and then no longer.
func (w *world) backUp(t *testing.T, topology *slots.Map) {
	t.Helper()
	defer w.startBackup(t, topology)()
	testenv.Eventually(t, "all cells are backed up", func(context.Context) (bool, error) {
		standings, complete := w.controller.States(), 0
		for _, standing := range standings {
			if standing.Complete && standing.Pending == 0 {
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
