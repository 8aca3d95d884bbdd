package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/process"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testUnreachable pauses a backup cell before it is compared, until the other stores have compacted its position. It
// is compared again when it is back, and the other backup cells are up to date meanwhile.
func (w *world) testUnreachable(t *testing.T) {
	const paused = "cell-c"
	w.wipe(t)
	defer w.wipe(t)
	healthy := w.compile(t, 30)
	for i := range objects {
		w.put(t, healthy, fmt.Sprintf("paused-%d", i), "one")
	}
	store := w.processOf(t, paused, "/etcd")
	if err := store.Pause(); err != nil {
		t.Fatal(err)
	}
	resume := func() {
		if err := store.Resume(); err != nil {
			t.Error(err)
		}
	}
	defer resume()
	ctx := t.Context()
	defer w.startBackup(t, healthy)()
	others := []string{"cell-a", "cell-b"}
	testenv.Eventually(t, "only the paused backup cell waits", func(context.Context) (bool, error) {
		for _, cell := range others {
			if state, watched := w.controller.States()[cell]; !watched || !slices.Equal(state.Waiting, []string{paused}) {
				return false, fmt.Errorf("%s: %+v", cell, state)
			}
		}
		return true, nil
	})
	for _, cell := range others {
		for i := range objects {
			if name := fmt.Sprintf("paused-%d", i); healthy.Name(healthy.Route(slots.Of(metav1.NamespaceDefault, name)).New) == cell {
				w.put(t, healthy, name, "two")
			}
		}
		revision, err := w.stores[cell].Revision(ctx)
		if err == nil {
			_, err = w.stores[cell].Client().Compact(ctx, revision)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	resume()
	w.verified(t, healthy)
}

func (w *world) processOf(t *testing.T, cell, suffix string) *process.Process {
	t.Helper()
	for _, plane := range w.cells {
		if plane.Name() != cell {
			continue
		}
		for _, p := range plane.Processes() {
			if strings.HasSuffix(p.Name(), suffix) {
				return p
			}
		}
	}
	t.Fatalf("%s has no process %s", cell, suffix)
	return nil
}
