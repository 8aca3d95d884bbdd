package backup

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

var errUnreachable = errors.New("unreachable")

func compiled(t *testing.T, epoch int64, cells ...string) *slots.Map {
	t.Helper()
	list := make([]slots.Cell, len(cells))
	for i, name := range cells {
		list[i] = slots.Cell{Name: name, Weight: 1}
	}
	m, err := slots.Compile(epoch, list)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// started runs a controller until the test ends.
func started(t *testing.T, c *Controller) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestManyTopologies sets topologies faster than the controller can apply them. It applies the last one.
func TestManyTopologies(t *testing.T) {
	var last atomic.Bool
	c := &Controller{Open: func(_ context.Context, cell string) (*cellstore.Store, error) {
		last.Store(last.Load() || cell == "last")
		return nil, errUnreachable
	}}
	started(t, c)
	topologies := [2]*slots.Map{compiled(t, 1, "first"), compiled(t, 2, "first")}
	for i := range 200_000 {
		c.Set(topologies[i%2])
	}
	c.Set(compiled(t, 3, "last"))
	testenv.Eventually(t, "the last topology is applied", func(context.Context) (bool, error) { return last.Load(), nil })
}

// TestNotBegun checks that a cell whose store does not answer is not reported as backed up.
func TestNotBegun(t *testing.T) {
	asked := make(chan struct{}, 100)
	c := &Controller{Open: func(context.Context, string) (*cellstore.Store, error) {
		asked <- struct{}{}
		return nil, errUnreachable
	}}
	started(t, c)
	c.Set(compiled(t, 1, "cell-a", "cell-b"))
	<-asked
	states := c.States()
	for _, cell := range []string{"cell-a", "cell-b"} {
		if state, found := states[cell]; !found || state.Complete || !state.Proven.IsZero() {
			t.Errorf("state of %s: %t, %+v", cell, found, state)
		}
	}
	if state := (&Controller{sources: map[string]*source{"cell-a": {pairs: nil}}}).States()["cell-a"]; state.Complete {
		t.Errorf("state of a cell whose watch has not begun: %+v", state)
	}
}

// TestBackupCells runs the tests that need stores.
func TestBackupCells(t *testing.T) {
	const term = cellstore.Term(7)
	stores := map[string]*cellstore.Store{}
	for _, plane := range testenv.StartFederation(t, local.Spec{Cells: 2, WithoutHub: true}).Cells {
		stores[plane.Name()] = storetest.For(t, plane)
	}
	t.Run("unreachable when a cell has left", func(t *testing.T) { testPurge(t, stores, term) })
	t.Run("late requests", func(t *testing.T) { testLate(t, stores["cell-b"], term) })
	t.Run("a store that was replaced", func(t *testing.T) { testReplaced(t, stores, term) })
	t.Run("the tail of a cell", func(t *testing.T) { testTail(t, stores, term) })
	t.Run("no room", func(t *testing.T) { testNoRoom(t, stores, term) })
}

// TestStopWaits checks that a failed cell is not promoted while its former source still runs.
func TestStopWaits(t *testing.T) {
	c := &Controller{
		sources: map[string]*source{"cell-a": {}},
		Open:    func(context.Context, string) (*cellstore.Store, error) { return nil, errUnreachable },
	}
	c.Set(compiledAs(t, 2, slots.Cell{Name: "cell-a", State: slots.Failed}, slots.Cell{Name: "cell-b"}))
	stopped := make(chan error, 1)
	go func() { stopped <- c.Stop(t.Context(), "cell-a") }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Stop(ctx, "cell-a"); !errors.Is(err, context.Canceled) {
		t.Errorf("the source runs, and Stop returned %v", err)
	}
	select {
	case err := <-stopped:
		t.Errorf("the source runs, and Stop returned %v", err)
	default:
	}
	c.ended()
	if err := <-stopped; !errors.Is(err, errUnreachable) { // now its backup cells are told
		t.Error(err)
	}
}

// testLate has an abandoned transaction reach a backup cell after the next one. It is refused.
func testLate(t *testing.T, target *cellstore.Store, term cellstore.Term) {
	ctx, key := t.Context(), "configmaps/default/late"
	p := newPair("cell-x", target, term, 1)
	if err := p.claim(ctx); err != nil {
		t.Fatal(err)
	}
	for i, next := range []struct {
		what string
		do   func() error
	}{
		{"the next write", func() error {
			p.guard = 0 // as after any error
			_, err := p.write(ctx)
			return err
		}},
		{"a comparison", func() error { return (&comparison{pair: p}).load(ctx) }},
		{"a stop", func() error {
			stopping := &Controller{Term: term, Open: func(context.Context, string) (*cellstore.Store, error) { return target, nil }}
			stopping.Set(compiledAs(t, 2, slots.Cell{Name: "cell-x", State: slots.Failed}, slots.Cell{Name: target.Cell}))
			return stopping.Stop(ctx, "cell-x")
		}},
	} {
		late := writer{pair: &pair{source: p.source, target: target, term: term, guard: p.guard}}
		if err := late.put(ctx, key, []byte("old")); err != nil {
			t.Fatal(err)
		}
		p.add(key, fmt.Append(nil, i))
		if err := next.do(); err != nil {
			t.Fatal(err)
		}
		before, _, err := target.Get(ctx, Prefix("cell-x")+key)
		if err != nil {
			t.Fatal(err)
		}
		if err := late.flush(ctx); !errors.Is(err, cellstore.ErrConflict) {
			t.Errorf("after %s: %v", next.what, err)
		}
		if after, _, err := target.Get(ctx, before.Key); err != nil || after.ModRevision != before.ModRevision {
			t.Errorf("after %s the backup cell has %q (%v)", next.what, after.Value, err)
		}
	}
	p.guard = 0 // the stop has taken it
	if _, err := p.write(ctx); err != nil {
		t.Error(err)
	}
}

// testNoRoom has a backup cell that is full. It gets no copies, and deletions nevertheless, and what has waited when there is room again. A comparison
// fails if it lacks copies. What a failed cell has left is copied.
func testNoRoom(t *testing.T, stores map[string]*cellstore.Store, term cellstore.Term) {
	ctx, store, target := t.Context(), stores["cell-a"], stores["cell-b"]
	full := true
	s := &source{store: store, places: &placements{}, term: term, targets: map[slots.Index]*cellstore.Store{1: target}, fullness: func(string) string {
		if full {
			return "its etcd is full"
		}
		return ""
	}}
	for slot := range s.places {
		s.places[slot] = 1
	}
	if err := s.identify(ctx); err != nil {
		t.Fatal(err)
	}
	p := s.newPairs(func(slots.Index) int64 { return 1 })[1]
	has := func(name string) bool {
		t.Helper()
		kv, _, err := target.Get(ctx, Prefix("cell-a")+name)
		if err != nil {
			t.Fatal(err)
		}
		return kv.ModRevision != 0
	}
	const old, added = "configmaps/default/no-room-old", "configmaps/default/no-room-new"
	if _, err := target.Txn(ctx, term, nil, cellstore.Put(Prefix("cell-a")+old, []byte("{}"))); err != nil {
		t.Fatal(err)
	}
	object := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"no-room-new"}}`)
	through, err := store.Txn(ctx, term, nil, cellstore.Put(store.Key(added), object))
	if err != nil {
		t.Fatal(err)
	}
	p.add(old, nil)
	p.add(added, object)
	p.advance(through)
	for range 2 { // the deletion is not repeated, and the copy still waits
		if carried, err := p.write(ctx); carried || !errors.Is(err, errNoRoom) || has(old) || has(added) {
			t.Errorf("a deletion and a copy: %t, %v", carried, err)
		}
		if got := p.state(); got.problem != (problem{reasonNoRoom, "it has no room: its etcd is full"}) || got.pending != 1 || got.written != 0 {
			t.Errorf("its state is %+v", got)
		}
	}
	compare := func() error {
		revision, err := store.Revision(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s.compare(ctx, map[slots.Index]*pair{1: p}, revision)[1].err
	}
	if err := compare(); !errors.Is(err, errNoRoom) {
		t.Errorf("a comparison: %v", err)
	}
	if err := (&Controller{}).newSource(1, s.places, store, s.targets).roomIn("cell-b"); err != nil {
		t.Errorf("what a failed cell has left: %v", err)
	}
	full = false
	if _, err := p.write(ctx); err != nil || !has(added) || p.state().problem != (problem{}) || p.state().written != through {
		t.Errorf("when there is room again: %v, %+v", err, p.state())
	}
	if err := compare(); err != nil {
		t.Errorf("a comparison when there is room again: %v", err)
	}
	full = true
	if err := compare(); err != nil {
		t.Errorf("a comparison with a full cell that has everything: %v", err)
	}
}

// testPurge has backup cells be unreachable when the copies of a cell that has left should be removed. They are
// removed later.
func testPurge(t *testing.T, stores map[string]*cellstore.Store, term cellstore.Term) {
	remains := []string{progressKey("gone"), scopeKey("gone"), Prefix("gone") + "configmaps/default/a", progressKey("gone-2"), scopeKey("gone-2"), guardKey("gone-3")}
	for _, target := range stores {
		for _, key := range remains {
			if _, err := target.Txn(t.Context(), term, nil, cellstore.Put(key, []byte("{}"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	var asked atomic.Int32
	c := &Controller{Term: term, Open: func(_ context.Context, cell string) (*cellstore.Store, error) {
		if asked.Add(1) <= 10 { // more than are asked for at the beginning
			return nil, errUnreachable
		}
		return stores[cell], nil
	}}
	started(t, c)
	c.Set(compiled(t, 2, "cell-a", "cell-b"))
	testenv.Eventually(t, "the copies of the cell are removed", func(ctx context.Context) (bool, error) {
		for cell, target := range stores {
			found, err := target.GetAll(ctx, remains)
			if err != nil {
				return false, err
			}
			for _, kv := range found {
				if kv.ModRevision != 0 {
					return false, fmt.Errorf("%s has %s", cell, kv.Key)
				}
			}
		}
		return true, nil
	})
}
