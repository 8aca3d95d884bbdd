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

var errAway = errors.New("nobody answers")

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

// TestManyTopologies tells the controller of topologies faster than it can follow them. It follows the last.
func TestManyTopologies(t *testing.T) {
	var last atomic.Bool
	c := &Controller{Open: func(_ context.Context, cell string) (*cellstore.Store, error) {
		last.Store(last.Load() || cell == "last")
		return nil, errAway
	}}
	started(t, c)
	topologies := [2]*slots.Map{compiled(t, 1, "first"), compiled(t, 2, "first")}
	for i := range 200_000 {
		c.Set(topologies[i%2])
	}
	c.Set(compiled(t, 3, "last"))
	testenv.Eventually(t, "the last topology is followed", func(context.Context) (bool, error) { return last.Load(), nil })
}

// TestNotBegun shows that a cell whose store does not answer is not told to be backed up.
func TestNotBegun(t *testing.T) {
	asked := make(chan struct{}, 100)
	c := &Controller{Open: func(context.Context, string) (*cellstore.Store, error) {
		asked <- struct{}{}
		return nil, errAway
	}}
	started(t, c)
	c.Set(compiled(t, 1, "cell-a", "cell-b"))
	<-asked
	standings := c.Standings()
	for _, cell := range []string{"cell-a", "cell-b"} {
		if standing, told := standings[cell]; !told || standing.Complete {
			t.Errorf("of %s is said: %t, %+v", cell, told, standing)
		}
	}
	if standing := (&Controller{sources: map[string]*source{"cell-a": {pairs: nil}}}).Standings()["cell-a"]; standing.Complete {
		t.Errorf("of a store that has not said where it is: %+v", standing)
	}
}

// TestKeepers tries what needs stores.
func TestKeepers(t *testing.T) {
	const term = cellstore.Term(7)
	stores := map[string]*cellstore.Store{}
	for _, plane := range testenv.StartFederation(t, local.Spec{Cells: 2, WithoutHub: true}).Cells {
		stores[plane.Name()] = storetest.For(t, plane)
	}
	t.Run("that are away when a cell has left", func(t *testing.T) { testPurge(t, stores, term) })
	t.Run("that do what was asked for long ago", func(t *testing.T) { testLate(t, stores["cell-b"], term) })
}

// testLate has a transaction that nobody waits for any more reach a keeper after the next one. It is refused.
func testLate(t *testing.T, keeper *cellstore.Store, term cellstore.Term) {
	ctx, key := t.Context(), "configmaps/default/late"
	p := newPair("cell-x", keeper, term, 1)
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
	} {
		late := writer{pair: &pair{source: p.source, keeper: keeper, term: term, guard: p.guard}}
		if err := late.put(ctx, key, []byte("old")); err != nil {
			t.Fatal(err)
		}
		p.note(key, fmt.Append(nil, i))
		if err := next.do(); err != nil {
			t.Fatal(err)
		}
		before, _, err := keeper.Get(ctx, Prefix("cell-x")+key)
		if err != nil {
			t.Fatal(err)
		}
		if err := late.flush(ctx); !errors.Is(err, cellstore.ErrConflict) {
			t.Errorf("after %s: %v", next.what, err)
		}
		if after, _, err := keeper.Get(ctx, before.Key); err != nil || after.ModRevision != before.ModRevision {
			t.Errorf("after %s the keeper has %q (%v)", next.what, after.Value, err)
		}
	}
	if _, err := p.write(ctx); err != nil {
		t.Error(err)
	}
}

// testPurge has keepers be away when the copies of a cell that has left should go. They go later.
func testPurge(t *testing.T, stores map[string]*cellstore.Store, term cellstore.Term) {
	remains := []string{progressKey("gone"), scopeKey("gone"), Prefix("gone") + "configmaps/default/a", progressKey("gone-2"), scopeKey("gone-2"), guardKey("gone-3")}
	for _, keeper := range stores {
		for _, key := range remains {
			if _, err := keeper.Txn(t.Context(), term, nil, cellstore.Put(key, []byte("{}"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	var asked atomic.Int32
	c := &Controller{Term: term, Open: func(_ context.Context, cell string) (*cellstore.Store, error) {
		if asked.Add(1) <= 10 { // more than are asked for at the beginning
			return nil, errAway
		}
		return stores[cell], nil
	}}
	started(t, c)
	c.Set(compiled(t, 2, "cell-a", "cell-b"))
	testenv.Eventually(t, "what was kept of the cell goes", func(ctx context.Context) (bool, error) {
		for cell, keeper := range stores {
			found, err := keeper.GetAll(ctx, remains)
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
